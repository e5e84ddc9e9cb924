"""What a simulated fleet looks like at rest, and what is broken in it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from hawker.catalog.change import Scope
from hawker.catalog.contract import Statement
from hawker.ids import NodeId, VolumeId
from hawker.machine import GONE
from hawker.proof import invariants
from hawker.proof.fleet import Held, NodeSeen, Promised, Started, fleet_at_rest
from hawker.proof.violation import Invariant, Violation
from hawker.record.machine import MACHINES
from hawker.record.node import FENCED, TAKEOVERS
from hawker.record.volume import VOLUMES
from hawker.sim.fleet.client import COUNTED, Counted
from hawker.sim.fleet.cluster import GossipingNode, LiveNode
from hawker.sim.fleet.host import FleetHost
from hawker.sim.fleet.shared_catalog import SharedCatalog

_ORDER = "order"
_MACHINES = "SELECT id FROM machines WHERE node = ?"
Rows = frozenset[tuple[object, ...]]


def judged(
    hosts: Sequence[FleetHost], promised: Sequence[Promised], shared_catalog: SharedCatalog | None = None
) -> list[Violation]:
    """All that is broken. Every host is up. Those of a light fleet have the `shared_catalog`."""
    found = fleet_at_rest([_seen(host) for host in hosts], promised, list(_started(hosts)))
    found += not_alike(hosts) if shared_catalog is None else not_told(hosts, shared_catalog)
    for host in hosts:
        found += _one(host, light=shared_catalog is not None)
    return [*found, *_gave_way(hosts)]


def bought(hosts: Sequence[FleetHost], counted: Iterable[Counted], volumes: Iterable[VolumeId]) -> list[Violation]:
    """Orders of several have no more machines than were asked for, and none if they were refused as a whole; volumes
    are kept."""
    found: list[Violation] = []
    there = [record for host in hosts for record in host_up(host).worker.machines() if record.state not in GONE]
    filled = Counter((record.config.metadata or {}).get(COUNTED) for record in there)
    for order in counted:
        if filled[order.label] > order.count:
            what = f"{filled[order.label]} machines, and {order.count} were asked for"
            found.append(Violation(Invariant.FILLED_ONCE, order.label, what))
        if order.refused and filled[order.label]:
            what = f"it was refused, and has {filled[order.label]} of {order.count} machines"
            found.append(Violation(Invariant.ALL_OR_NONE, order.label, what))
    kept = {key for host in hosts for key, _ in host_up(host).worker.store.scan(VOLUMES)}
    lost = (volume for volume in volumes if volume not in kept)
    return [*found, *(Violation(Invariant.KEPT, volume, "no node has this volume") for volume in lost)]


def not_alike(hosts: Sequence[FleetHost]) -> list[Violation]:
    """Replicas of a region that differ, in all tables; those of all regions, in the tables that all have; and nodes
    whose machines are not what the catalog says."""
    found: list[Violation] = []
    read = {host.id: _replica(host) for host in hosts}
    for region in sorted({host.region for host in hosts}):
        found += fleet_at_rest([_of(host, read, tuple(Scope)) for host in hosts if host.region == region])
    found += fleet_at_rest([_of(host, read, (Scope.GLOBAL,)) for host in hosts])
    for host in hosts:
        found += _told(host, (row[0] for row in _rows(_up(host), _MACHINES, host.id)))
    return found


def not_told(hosts: Sequence[FleetHost], shared_catalog: SharedCatalog) -> list[Violation]:
    """Nodes of a light fleet that are not known, or whose machines are not what all read."""
    known = {str(node) for (node,) in shared_catalog.rows("SELECT node FROM capacity")}
    away = [Violation(Invariant.CONVERGED, host.id, "nobody knows it") for host in hosts if host.id not in known]
    return [
        *away,
        *(each for host in hosts for each in _told(host, (row[0] for row in shared_catalog.rows(_MACHINES, host.id)))),
    ]


def _told(host: FleetHost, rows: Iterable[object]) -> Iterator[Violation]:
    told = {str(row) for row in rows}
    kept = {record.id for record in host_up(host).worker.machines()}
    if told != kept:
        what = f"it has {sorted(kept)}, and the catalog says {sorted(told)}"
        yield Violation(Invariant.CONVERGED, host.id, what)


def _one(host: FleetHost, *, light: bool) -> list[Violation]:
    with host_up(host).worker.store.snapshot() as reader:
        if light:  # its machines never ran, so their histories are not told
            return invariants.of_store(reader, touched=())
        return invariants.at_rest(reader, host.place.seen())


def _seen(host: FleetHost) -> NodeSeen:
    node = host_up(host)
    table, store = node.parts.deps.table, node.worker.store
    held = tuple(
        Held(id=record.id, order=(record.config.metadata or {}).get(_ORDER))
        for record in node.worker.machines()
        if record.state not in GONE
    )
    return NodeSeen(node=host.id, capacity=host.place.room, machines=held, used=table.used(store))


def _started(hosts: Sequence[FleetHost]) -> Iterator[Started]:
    for host in hosts:
        for _, record in host_up(host).worker.store.scan(TAKEOVERS):
            yield Started(spare=record.spare, machine=record.machine, seen=record.seen)


def _gave_way(hosts: Sequence[FleetHost]) -> Iterator[Violation]:
    """A machine that a spare took over from was ended at least once since."""
    for each in _started(hosts):
        for host in hosts:
            store = host_up(host).worker.store
            if store.get(MACHINES, each.machine) is None:
                continue
            fenced = store.get(FENCED, each.machine)
            if fenced is None or fenced.seen < each.seen:
                what = f"{each.spare} took over from it, and it was never ended"
                yield Violation(Invariant.ONE_INSTANCE, each.machine, what)


def _replica(host: FleetHost) -> dict[Scope, Rows]:
    node, rows = _up(host), dict[Scope, set[tuple[object, ...]]]()
    for table, scope in sorted(node.storage.tables().items()):
        rows.setdefault(scope, set()).update((table, *row) for row in _rows(node, f"SELECT * FROM {table}"))
    return {scope: frozenset(found) for scope, found in rows.items()}


def _of(host: FleetHost, read: dict[NodeId, dict[Scope, Rows]], scopes: Iterable[Scope]) -> NodeSeen:
    rows: Rows = frozenset().union(*(read[host.id].get(scope, ()) for scope in scopes))
    return NodeSeen(node=host.id, capacity=host.place.room, machines=(), rows=rows)


def _rows(node: GossipingNode, query: str, *params: str) -> tuple[tuple[object, ...], ...]:
    return node.storage.query(Statement(query=query, params=params)).rows


def _up(host: FleetHost) -> GossipingNode:
    node = host_up(host)
    assert isinstance(node, GossipingNode), "it has a replica"
    return node


def host_up(host: FleetHost) -> LiveNode:
    assert host.node is not None, f"{host.id} is not up"
    return host.node
