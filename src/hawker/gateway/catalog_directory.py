"""What the catalog says of the fleet, by name: nodes and whether they live, owners, who knows which app. Each is a look
into the node's own file and waits for nobody.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from hawker.api.directory import KnownApp, KnownMachine, KnownVolume, Node
from hawker.catalog.change import Token, Value
from hawker.clock import Clock
from hawker.ids import AppName, NodeId
from hawker.node import Capacity, Resources
from hawker.record.node import Revocation

CATCH_UP_EVERY_S = 0.01
NODES_FOR_S = 0.25
UNHEARD_FOR_S = 10.0
"""The seconds after gossip has heard of anybody for which its silence about a node is ignorance; later its silence
means that the node is down: whoever is heard of tells of all others that live, within a second or two."""


class Looks(Protocol):
    """The reading of the catalog. `catalog.reads.PointReader` keeps it."""

    def rows(self, query: str, *params: Value) -> Sequence[tuple[Value, ...]]: ...


class Reached(Protocol):
    """Whether what was written at a place can be looked at by now, waiting for it if need be; False where nobody can
    tell. `catalog.mirror.Mirror.reached` keeps it."""

    async def __call__(self, token: Token, *, timeout_s: float) -> bool: ...


_NODES = """SELECT n.node, n.region, n.cordoned, n.draining, n.drivers, n.labels, m.state,
    c.cpus, c.memory_mib, c.disk_mib, c.shared_ratio,
    c.used_shared_cpus, c.used_performance_cpus, c.used_memory_mib, c.used_disk_mib
    FROM nodes n LEFT JOIN __corro_members m ON m.host = n.node LEFT JOIN capacity c ON c.node = n.node
    ORDER BY n.node"""
_MACHINE = "SELECT node FROM machines WHERE id = ? ORDER BY generation DESC, updated_at DESC, node LIMIT 1"
_MACHINE_OF_APP = _MACHINE.replace("id = ?", "id = ? AND app = ?")
_GENERATION = "SELECT max(generation) FROM machines WHERE id = ?"
_VOLUME = "SELECT node FROM volumes WHERE id = ? ORDER BY node LIMIT 1"
_APP = """SELECT node, name, org, home, CASE WHEN json_valid(record) THEN json_extract(record, '$.created_at') END
    FROM apps WHERE name = ? ORDER BY home DESC, node"""
_APPS = "SELECT node, name, org, home, 0.0 FROM apps ORDER BY name"
_APPS_OF = "SELECT node, name, org, home, 0.0 FROM apps WHERE org = ? ORDER BY name"
_NETWORK = """SELECT json_extract(record, '$.network_id') AS number FROM apps
    WHERE org = ? AND json_valid(record) AND json_extract(record, '$.network') = ? AND number IS NOT NULL
    ORDER BY json_extract(record, '$.created_at'), name LIMIT 1"""
_PAIRS = """SELECT DISTINCT org, json_extract(record, '$.network') FROM apps
    WHERE json_valid(record) AND json_extract(record, '$.network_id') = ?"""
_MACHINES_AT = """SELECT id, name, state, version, image, private_ip, cordoned, metadata, created_at, updated_at
    FROM machines WHERE node = ? AND app = ? AND id > ? ORDER BY id LIMIT ?"""
_VOLUMES_AT = """SELECT id, name, state, size_gb, machine
    FROM volumes WHERE node = ? AND app = ? AND id > ? ORDER BY id LIMIT ?"""
_REVOKED = "SELECT token_id, at, substr(by, 1, 200), substr(note, 1, 200) FROM revoked_tokens"
_REVOCATION = f"{_REVOKED} WHERE token_id = ? ORDER BY at LIMIT 1"
_IS_REVOKED = "SELECT 1 FROM revoked_tokens WHERE token_id IN (SELECT value FROM json_each(?)) LIMIT 1"
_PLACES = "SELECT scope, epoch, applied FROM __c_origin WHERE origin = ?"
_LIVES = frozenset({"alive", "suspect"})


class CatalogDirectory:
    """Keeps `Directory` and `AppIndex`. `own` is the node whose catalog it is. `reached` judges places where that is
    not in what is looked at, as where an agent keeps the catalog."""

    def __init__(self, looks: Looks, clock: Clock, own: NodeId, region: str, reached: Reached | None = None) -> None:
        self._looks = looks
        self._clock = clock
        self._own = own
        self._region = region
        self._reached = reached
        self._rows: Sequence[tuple[Value, ...]] = ()
        self._nodes: Mapping[NodeId, Node] = {}
        self._all: tuple[Node, ...] = ()
        self._made: dict[tuple[Value, ...], Node] = {}
        self._gossips = False
        self._learns, self._learns_until = True, float("inf")  # gossip may tell of nodes that it was silent about
        self._nodes_until = 0.0

    @property
    def region(self) -> str:
        return self._region

    def nodes(self) -> Sequence[Node]:
        """All nodes; the same tuple for as long as nothing of it changes."""
        self._known()
        return self._all

    def node(self, node_id: NodeId) -> Node | None:
        return self._known().get(node_id)

    def owner_of_machine(self, machine_id: str, app: AppName | None = None) -> NodeId | None:
        return self._one(_MACHINE, machine_id) if app is None else self._one(_MACHINE_OF_APP, machine_id, app)

    def generation_of_machine(self, machine_id: str) -> int:
        """The greatest of its rows; 0 when there are none."""
        found = next(iter(self._looks.rows(_GENERATION, machine_id)), (None,))[0]
        return found if isinstance(found, int) else 0

    def owner_of_volume(self, volume_id: str) -> NodeId | None:
        return self._one(_VOLUME, volume_id)

    def nodes_of_app(self, app: AppName) -> Sequence[NodeId]:
        return tuple(known.node for known in self.app(app))

    def home_of_app(self, app: AppName) -> NodeId | None:
        return next((known.node for known in self.app(app) if known.home), None)

    def apps(self, org: str | None = None) -> Sequence[KnownApp]:
        rows = self._looks.rows(_APPS) if org is None else self._looks.rows(_APPS_OF, org)
        return tuple(map(_known_app, rows))

    def app(self, name: AppName) -> Sequence[KnownApp]:
        return tuple(map(_known_app, self._looks.rows(_APP, name)))

    def network_of(self, org: str, network: str) -> int | None:
        number = next((number for (number,) in self._looks.rows(_NETWORK, org, network)), None)
        return number if isinstance(number, int) else None

    def pairs_of(self, number: int) -> Sequence[tuple[str, str]]:
        return [(str(org), str(network)) for org, network in self._looks.rows(_PAIRS, number)]

    def machines_at(self, node: NodeId, app: AppName, after: str, limit: int) -> Sequence[KnownMachine]:
        """The machines of an app that this node said last, by id, beyond `after`."""
        return tuple(map(_known_machine, self._looks.rows(_MACHINES_AT, node, app, after, limit)))

    def volumes_at(self, node: NodeId, app: AppName, after: str, limit: int) -> Sequence[KnownVolume]:
        return tuple(map(_known_volume, self._looks.rows(_VOLUMES_AT, node, app, after, limit)))

    def forgotten(self, node: NodeId) -> bool:
        """Whether a node was forgotten on purpose, by `hawker node forget`: a node that was never heard of was not."""
        fenced = self._looks.rows("SELECT 1 FROM __c_origin WHERE origin = ? AND forgotten >= 0 LIMIT 1", node)
        return bool(fenced) and self.node(node) is None

    def org_of(self, app: str) -> str | None:
        return next((known.org for known in self.app(AppName(app))), None)

    def address_of(self, node_id: NodeId) -> str | None:
        """The base URL of its peer API."""
        rows = self._looks.rows("SELECT api FROM nodes WHERE node = ?", node_id)
        return next((str(api) for (api,) in rows), None)

    def is_revoked(self, ids: Sequence[str]) -> bool:
        """Whether any node says of one of these tokens that it was revoked: by key, however many were."""
        return bool(self._looks.rows(_IS_REVOKED, msgspec.json.encode(ids).decode()))

    def revocation(self, token_id: str) -> Revocation | None:
        """The earliest that any node says of a token."""
        return next(map(_revocation, self._looks.rows(_REVOCATION, token_id)), None)

    def revocations(self) -> Sequence[Revocation]:
        """All that any node says, the earliest first."""
        return tuple(map(_revocation, self._looks.rows(f"{_REVOKED} ORDER BY at")))

    async def caught_up(self, token: str, *, timeout_s: float) -> bool:
        """No wait for what never comes here: the stream of another region."""
        origin, epoch, version = token.split(":")
        if self._reached is not None:
            place = Token(origin=NodeId(origin), epoch=int(epoch), version=int(version))
            return await self._reached(place, timeout_s=timeout_s)
        until = self._clock.monotonic() + timeout_s
        while True:
            places = {
                str(scope): (int(_float(e)), int(_float(at))) for scope, e, at in self._looks.rows(_PLACES, origin)
            }
            if _reached(places, int(epoch), int(version)):
                return True
            node = self.node(NodeId(origin))
            abroad = node is not None and node.region != self._region
            comes = not abroad or places.get("global", (0, 0))[0] == int(epoch)
            if not comes or self._clock.monotonic() >= until:
                return False
            await self._clock.sleep(CATCH_UP_EVERY_S)

    def _known(self) -> Mapping[NodeId, Node]:
        """As it was a moment ago: each call asks several times, and of all nodes."""
        now = self._clock.monotonic()
        if now >= self._nodes_until:
            rows, learns = self._looks.rows(_NODES), now < self._learns_until
            if rows != self._rows or learns != self._learns:
                heard = {row[0] for row in rows if row[6] is not None}
                gossips = bool(heard)
                before = self._made if (gossips, learns) == (self._gossips, self._learns) else {}
                made = partial(_node, gossips=gossips, learns=learns, own=self._own, region=self._region)
                self._made = {row: before.get(row) or made(row) for row in rows}
                self._rows, self._gossips, self._learns = rows, gossips, learns
                if heard - {self._own}:
                    self._learns_until = min(self._learns_until, now + UNHEARD_FOR_S)
                self._nodes = {node.id: node for node in self._made.values()}
                self._all = tuple(self._nodes.values())
            self._nodes_until = now + NODES_FOR_S
        return self._nodes

    def _one(self, query: str, *names: str) -> NodeId | None:
        return next((NodeId(str(node)) for (node,) in self._looks.rows(query, *names)), None)


def _reached(places: Mapping[str, tuple[int, int]], epoch: int, version: int) -> bool:
    """Or its owner began anew since. The epochs of an owner's two streams are never the same."""
    for known, applied in places.values():
        if known == epoch:
            return applied >= version
    return len(places) == 2 and all(known > epoch for known, _ in places.values())


def _node(row: tuple[Value, ...], *, gossips: bool, learns: bool, own: NodeId, region: str) -> Node:
    node, where, cordoned, draining, drivers, labels, state, *figures = row
    id_, at = NodeId(str(node)), str(where)
    known = figures[0] is not None and at == region
    return Node(
        id=id_,
        region=at,
        alive=not gossips or id_ == own or state in _LIVES,
        unheard=gossips and learns and id_ != own and state is None,
        cordoned=bool(cordoned),
        draining=bool(draining),
        drivers=tuple(map(str, _json(drivers, list))),
        labels={str(key): str(value) for key, value in _json(labels, dict).items()},
        capacity=_capacity(figures) if known else None,
        used=_used(figures) if known else None,
    )


def _capacity(figures: Sequence[Value]) -> Capacity:
    cpus, memory, disk, ratio, *_ = map(_float, figures)
    return Capacity(cpus=int(cpus), memory_mib=int(memory), disk_mib=int(disk), shared_ratio=ratio)


def _used(figures: Sequence[Value]) -> Resources:
    shared, performance, memory, disk = (int(_float(figure)) for figure in figures[4:])
    return Resources(shared_cpus=shared, performance_cpus=performance, memory_mib=memory, disk_mib=disk)


def _known_app(row: tuple[Value, ...]) -> KnownApp:
    node, name, org, home, created_at = row
    return KnownApp(
        node=NodeId(str(node)),
        name=AppName(str(name)),
        org=str(org),
        home=bool(home),
        created_at=_float(created_at),
    )


def _known_machine(row: tuple[Value, ...]) -> KnownMachine:
    id_, name, state, version, image, private_ip, cordoned, metadata, created_at, updated_at = row
    return KnownMachine(
        id=str(id_),
        name=str(name),
        state=str(state),
        version=str(version),
        image=str(image),
        private_ip=str(private_ip),
        cordoned=bool(cordoned),
        metadata={str(key): str(value) for key, value in _json(metadata, dict).items()},
        created_at=_float(created_at),
        updated_at=_float(updated_at),
    )


def _known_volume(row: tuple[Value, ...]) -> KnownVolume:
    id_, name, state, size_gb, machine = row
    return KnownVolume(
        id=str(id_), name=str(name), state=str(state), size_gb=int(_float(size_gb)), machine=str(machine)
    )


def _revocation(row: tuple[Value, ...]) -> Revocation:
    token_id, at, by, note = row
    return Revocation(token_id=str(token_id), at=_float(at), by=str(by), note=str(note))


def _json(text: Value, kind: type[Any]) -> Any:
    """What a row holds that any node may have written: empty where it is not what it should be."""
    try:
        return msgspec.json.decode(str(text), type=kind)
    except msgspec.DecodeError:
        return kind()


def _float(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
