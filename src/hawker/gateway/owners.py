"""Who has a machine, a volume or a snapshot, and which nodes know an app: the catalog's word, what this broker saw pass
a moment ago, and, where neither knows, what the nodes themselves say.

An app whose home was forgotten is given another by the broker that next needs it: of the nodes that know it, the one
that was last brought up to date. Brokers that choose at the same moment ask the same nodes the same; should they see
others, the directory has an order of homes that is the same for all.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from hawker.api.call_metadata import UNTOLD, CallMetadata, place_of
from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.owner import GET_OWNER, SETTLE_HOME, AppCopy, HomeRequest, Owner, OwnerParams
from hawker.api.directory import Directory
from hawker.clock import Clock
from hawker.errors import Conflict, NotFound, Unavailable
from hawker.gateway.fan_out import FanOut
from hawker.ids import AppName, NodeId, is_machine_id, is_snapshot_id, is_volume_id
from hawker.log import bind

Kind: TypeAlias = Literal["machine", "volume", "snapshot"]

CATCH_UP_S = 1.0
REMEMBERED_S = 30.0
MOST_REMEMBERED = 10_000
MOST_ASKED = 1024
_IDS = {"machine": is_machine_id, "volume": is_volume_id, "snapshot": is_snapshot_id}


class Owners:
    def __init__(self, directory: Directory, asking: FanOut, clock: Clock) -> None:
        self.directory = directory
        self._fan_out = asking
        self._clock = clock
        self._seen: OrderedDict[tuple[str, str], tuple[NodeId, float]] = OrderedDict()

    def remember(self, kind: Kind | Literal["app"], name: str, node: NodeId) -> None:
        """Remembers that a thing was just seen at `node`, which the catalog may not say yet."""
        self._seen[kind, name] = (node, self._clock.monotonic() + REMEMBERED_S)
        self._seen.move_to_end((kind, name))
        if len(self._seen) > MOST_REMEMBERED:
            self._seen.popitem(last=False)

    async def hint(self, version: str | None) -> NodeId | None:
        """Waits until what the caller wrote can be read here. The node where it was written when that takes too long,
        or cannot be told; None where nobody knows that node, which then cannot be asked. Raises `BadRequest`."""
        place = place_of(version)
        if place is None:
            return None
        origin, _, at = place.partition(":")
        if at != UNTOLD and await self.directory.caught_up(place, timeout_s=CATCH_UP_S):
            return None
        node = NodeId(origin)
        return node if self._fan_out.reach.knows(node) else None

    def known(self, kind: Kind, name: str) -> NodeId | None:
        """The owner of a thing, as far as it is known without asking anybody."""
        if kind == "machine":
            return self.directory.owner_of_machine(name) or self._remembered(kind, name)
        if kind == "volume":
            return self.directory.owner_of_volume(name) or self._remembered(kind, name)
        return self._remembered(kind, name)

    def nodes_of_app(self, app: AppName, hint: NodeId | None = None) -> tuple[NodeId, ...]:
        """All nodes that know the app, its home first."""
        seen = self._remembered("app", app)
        return tuple(dict.fromkeys([*self.directory.nodes_of_app(app), *filter(None, (seen, hint))]))

    def home_of_app(self, app: AppName) -> NodeId | None:
        return self.directory.home_of_app(app) or self._remembered("app", app)

    async def ask(
        self, kind: Kind, name: str, nodes: Iterable[NodeId], behalf: str, *, without: NodeId | None = None
    ) -> Owner | None:
        """The owner of a thing as nodes say themselves: first one of each other region, which knows of its neighbours,
        then the others. Raises `Unavailable` when the thing may be at a node that cannot be asked."""
        if not _IDS[kind](name):
            return None
        left = self._abroad_first(node for node in nodes if node != without)[:MOST_ASKED]
        params = OwnerParams(kind=kind, id=name)

        async def one(caller: Caller) -> Owner:
            return await caller.call(GET_OWNER, params=params)

        asked = await self._fan_out.first(left, behalf, one)
        for _, found in asked.answers:
            self.remember(kind, name, NodeId(found.node))
            return found
        if asked.silent:
            _, error = asked.silent[0]
            raise Unavailable(f"{kind} {name} is at no node that could be asked: {error}")
        return None

    def _abroad_first(self, nodes: Iterable[NodeId]) -> list[NodeId]:
        """One that is alive of each other region before all others."""
        reach, first, rest = self._fan_out.reach, dict[str, NodeId](), list[NodeId]()
        for node in nodes:
            region = reach.region_of(node)
            if region != self.directory.region and region not in first and reach.alive(node):
                first[region] = node
            else:
                rest.append(node)
        return [*first.values(), *rest]

    def _remembered(self, kind: str, name: str) -> NodeId | None:
        node, until = self._seen.get((kind, name), (None, 0.0))
        return node if self._clock.monotonic() < until else None


_log = bind("hawker.broker")


class HomeElection:
    """`forgotten`: whether a node was, which is more than that nobody has heard of it."""

    def __init__(self, owners: Owners, asking: FanOut, forgotten: Callable[[NodeId], bool]) -> None:
        self._owners = owners
        self._fan_out = asking
        self._forgotten = forgotten

    async def home(self, app: AppName, behalf: str) -> NodeId | None:
        """The home of an app; None when nobody knows the app, or nobody who does may be its home."""
        directory = self._owners.directory
        home = directory.home_of_app(app)
        if home is not None:
            return home
        nodes = directory.nodes_of_app(app)
        if not nodes:
            return self._owners.home_of_app(app)

        async def one(caller: Caller) -> AppCopy:
            return await caller.call(SETTLE_HOME, params=AppParams(app_name=app), body=HomeRequest())

        asked = await self._fan_out.every(nodes, behalf, one)
        copies = sorted(asked.answers, key=lambda pair: (*_freshness(pair[1]), pair[0]))
        if not copies:
            return None
        heir, copy = copies[-1]
        if copy.home == heir:
            return heir  # it is, and the catalog does not say so yet
        return await self._take(app, heir, NodeId(copy.home), behalf) if self._forgotten(NodeId(copy.home)) else None

    async def _take(self, app: AppName, heir: NodeId, old: NodeId, behalf: str) -> NodeId | None:
        """Returns once this broker can read it."""
        metadata, reach = CallMetadata(), self._fan_out.reach
        body, params = HomeRequest(old=old, take=True), AppParams(app_name=app)
        try:
            with reach.errors(heir, harmless=True):
                await reach.caller(heir, behalf).call(SETTLE_HOME, params=params, body=body, metadata=metadata)
        except (Conflict, NotFound):
            return None
        _log.warning("app has a new home", extra={"app": app, "home": heir, "forgotten": old})
        if metadata.version is not None:
            await self._owners.directory.caught_up(metadata.version, timeout_s=CATCH_UP_S)
        return heir


def _freshness(copy: AppCopy) -> tuple[int, int, float]:
    return copy.reign, copy.number, copy.read_at
