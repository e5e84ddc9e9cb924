"""A home for an app whose home was forgotten: of the nodes that know it, the one that was last brought up to date.

It is chosen by the broker that next needs it. Brokers that choose at the same moment ask the same nodes the same;
should they see others, the directory has an order of homes that is the same for all.
"""

from collections.abc import Callable

from hawker.api.call_metadata import CallMetadata
from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.owner import SETTLE_HOME, AppCopy, HomeRequest
from hawker.errors import Conflict, NotFound
from hawker.gateway.fan_out import FanOut
from hawker.gateway.owners import CATCH_UP_S, Owners
from hawker.ids import AppName, NodeId
from hawker.log import bind

_log = bind("hawker.broker")


class HomeElection:
    """`forgotten`: whether a node was, which is more than that nobody has heard of it."""

    def __init__(self, owners: Owners, asking: FanOut, forgotten: Callable[[NodeId], bool]) -> None:
        self._owners = owners
        self._fan_out = asking
        self._forgotten = forgotten

    async def home(self, app: AppName, behalf: str) -> NodeId | None:
        """None when nobody knows the app, or nobody who does may be its home."""
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
