"""Each promise of a fleet is found broken when it is, and only then."""

from hawker.ids import MachineId, NodeId
from hawker.node import Capacity, Resources
from hawker.proof.fleet import Held, NodeSeen, Promised, Started, fleet_at_rest
from hawker.proof.violation import Invariant

A, B = NodeId("aaaaaaaa"), NodeId("bbbbbbbb")
ROOM = Capacity(cpus=1, memory_mib=512, disk_mib=1000)
SMALL = Resources(shared_cpus=1, memory_mib=256, disk_mib=100)
ROWS = frozenset({("m1", "started"), ("m2", "stopped")})


def held(number: int, *, order: str | None = None, holds: Resources = SMALL) -> Held:
    return Held(id=MachineId(f"{number:014x}"), order=order, holds=holds)


def node(node_id: NodeId, *machines: Held, rows: frozenset[tuple[object, ...]] | None = None) -> NodeSeen:
    return NodeSeen(node=node_id, capacity=ROOM, machines=machines, rows=rows)


def found(*nodes: NodeSeen, promised: tuple[Promised, ...] = (), started: tuple[Started, ...] = ()) -> list[Invariant]:
    return [violation.invariant for violation in fleet_at_rest(nodes, promised, started)]


def test_a_fleet_that_keeps_its_promises_has_nothing_wrong() -> None:
    one = Started(spare=MachineId("e1"), machine=MachineId("d1"), seen=1.0)
    again = Started(spare=MachineId("e1"), machine=MachineId("d1"), seen=2.0)
    nodes = (node(A, held(1, order="x"), held(2), rows=ROWS), node(B, held(3, order="y"), rows=ROWS))
    kept = (Promised(order="x", machine=held(1).id),)
    assert found(*nodes, promised=kept, started=(one, again)) == []


def test_an_order_with_two_machines_is_found_on_one_node_and_on_two() -> None:
    assert found(node(A, held(1, order="x")), node(B, held(2, order="x"))) == [Invariant.FILLED_ONCE]
    assert found(node(A, held(1, order="x"), held(2, order="x"))) == [Invariant.FILLED_ONCE]


def test_a_machine_that_was_promised_and_is_nowhere_is_found() -> None:
    assert found(node(A, held(1)), promised=(Promised(order="x", machine=held(2).id),)) == [Invariant.KEPT]


def test_an_oversold_host_is_found() -> None:
    assert found(node(A, held(1), held(2), held(3))) == [Invariant.NOT_OVERSOLD]
    full = NodeSeen(node=A, capacity=ROOM, machines=(), used=Resources(memory_mib=513))
    assert found(full) == [Invariant.NOT_OVERSOLD]


def test_replicas_that_differ_are_found_in_both_directions() -> None:
    more = ROWS | {("m3", "started")}
    assert found(node(A, rows=ROWS), node(B, rows=more)) == [Invariant.CONVERGED]
    other = frozenset({("m1", "stopped"), ("m2", "stopped")})
    assert found(node(A, rows=ROWS), node(B, rows=other)) == [Invariant.CONVERGED] * 2
    assert found(node(A, rows=ROWS), node(B, rows=None)) == []


def test_two_spares_for_one_loss_are_found() -> None:
    started = tuple(Started(spare=MachineId(spare), machine=MachineId("d1"), seen=1.0) for spare in ("e1", "e2"))
    assert found(node(A), started=started) == [Invariant.SPARE_ONCE]
