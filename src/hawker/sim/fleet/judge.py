"""What a simulated fleet looks like at rest, and what is broken in it."""

from collections.abc import Iterable, Iterator, Sequence

from hawker.catalog.change import Scope
from hawker.catalog.contract import Statement
from hawker.machine import GONE
from hawker.proof import invariants
from hawker.proof.fleet import Held, NodeSeen, Promised, Started, fleet_at_rest
from hawker.proof.violation import Invariant, Violation
from hawker.sim.fleet.host import Host
from hawker.sim.fleet.joined import Joined
from hawker.worker.records import MACHINES
from hawker.worker.spares.records import FENCED, TAKEOVERS

_ORDER = "order"
Rows = frozenset[tuple[object, ...]]


def judged(hosts: Sequence[Host], promised: Sequence[Promised]) -> list[Violation]:
    """All that is broken. Every host is up."""
    found = fleet_at_rest([_seen(host) for host in hosts], promised, list(_started(hosts)))
    found += not_alike(hosts)
    for host in hosts:
        found += _one(host)
    return [*found, *_gave_way(hosts)]


def not_alike(hosts: Sequence[Host]) -> list[Violation]:
    """Replicas of a region that differ, in all tables; those of all regions, in the tables that all have; and nodes
    whose machines are not what the catalog says."""
    found: list[Violation] = []
    for region in sorted({host.region for host in hosts}):
        there = [host for host in hosts if host.region == region]
        found += fleet_at_rest([_replica(host, tuple(Scope)) for host in there])
    found += fleet_at_rest([_replica(host, (Scope.GLOBAL,)) for host in hosts])
    for host in hosts:
        node = _up(host)
        told = {str(row[0]) for row in _rows(node, "SELECT id FROM machines WHERE node = ?", host.id)}
        kept = {record.id for record in node.worker.machines()}
        if told != kept:
            what = f"it has {sorted(kept)}, and the catalog says {sorted(told)}"
            found.append(Violation(Invariant.CONVERGED, host.id, what))
    return found


def _one(host: Host) -> list[Violation]:
    with _up(host).worker.store.snapshot() as reader:
        return invariants.at_rest(reader, host.place.seen())


def _seen(host: Host) -> NodeSeen:
    node = _up(host)
    table, store = node.parts.deps.table, node.worker.store
    held = tuple(
        Held(id=record.id, order=(record.config.metadata or {}).get(_ORDER))
        for record in node.worker.machines()
        if record.state not in GONE
    )
    return NodeSeen(node=host.id, capacity=host.place.room, machines=held, used=table.used(store))


def _started(hosts: Sequence[Host]) -> Iterator[Started]:
    for host in hosts:
        for _, record in _up(host).worker.store.scan(TAKEOVERS):
            yield Started(spare=record.spare, machine=record.machine, seen=record.seen)


def _gave_way(hosts: Sequence[Host]) -> Iterator[Violation]:
    """A machine that a spare took over from was ended at least once since."""
    for each in _started(hosts):
        for host in hosts:
            store = _up(host).worker.store
            if store.get(MACHINES, each.machine) is None:
                continue
            fenced = store.get(FENCED, each.machine)
            if fenced is None or fenced.seen < each.seen:
                what = f"{each.spare} took over from it, and it was never ended"
                yield Violation(Invariant.ONE_INSTANCE, each.machine, what)


def _replica(host: Host, scopes: Iterable[Scope]) -> NodeSeen:
    node = _up(host)
    tables = [name for name, scope in sorted(node.storage.tables().items()) if scope in scopes]
    rows: Rows = frozenset((table, *row) for table in tables for row in _rows(node, f"SELECT * FROM {table}"))
    return NodeSeen(node=host.id, capacity=host.place.room, machines=(), rows=rows)


def _rows(node: Joined, query: str, *params: str) -> tuple[tuple[object, ...], ...]:
    return node.storage.query(Statement(query=query, params=params)).rows


def _up(host: Host) -> Joined:
    assert host.node is not None, f"{host.id} is not up"
    return host.node
