"""What holds of a fleet at rest, whatever happened to its nodes and to the network between them. Pure: what was seen of
each node in, what is broken out. For the simulated fleet and for the real one."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from hawker.ids import MachineId, NodeId
from hawker.node import Capacity, Resources, shortfall, shortfall_text
from hawker.proof.violation import Invariant, Violation
from hawker.value_object import ValueObject

NOTHING = Resources()
_SHOWN = 3


class Held(ValueObject, frozen=True, kw_only=True):
    """A machine that a node has and has not destroyed. `order` is the name that its client gave the order; `holds` is
    left out where the node was only asked for the sum."""

    id: MachineId
    order: str | None = None
    holds: Resources = NOTHING


class NodeSeen(ValueObject, frozen=True, kw_only=True):
    """What a node itself says. `used` is what its books say that its machines hold. `rows` is its replica of the
    region, the same rows in any order; None when it was not asked."""

    node: NodeId
    capacity: Capacity
    machines: tuple[Held, ...]
    used: Resources | None = None
    rows: frozenset[tuple[object, ...]] | None = None


class Started(ValueObject, frozen=True, kw_only=True):
    """That a spare was started in the place of a machine, as that was `seen` by its last row."""

    spare: MachineId
    machine: MachineId
    seen: float


class Promised(ValueObject, frozen=True, kw_only=True):
    """An order that was answered with a machine, at a node that is there, and that nobody destroyed since."""

    order: str
    """The name that its client gave it."""
    machine: MachineId


def fleet_at_rest(
    nodes: Sequence[NodeSeen], promised: Sequence[Promised] = (), started: Sequence[Started] = ()
) -> list[Violation]:
    return [
        *_filled_once(nodes),
        *_kept(nodes, promised),
        *_not_oversold(nodes),
        *_converged(nodes),
        *_started_once(started),
    ]


def _filled_once(nodes: Sequence[NodeSeen]) -> Iterator[Violation]:
    filled: dict[str, list[str]] = defaultdict(list)
    for seen in nodes:
        for held in seen.machines:
            if held.order is not None:
                filled[held.order].append(f"{held.id} at {seen.node}")
    for order, machines in sorted(filled.items()):
        if len(machines) > 1:
            yield Violation(Invariant.FILLED_ONCE, order, f"it became {' and '.join(machines)}")


def _kept(nodes: Sequence[NodeSeen], promised: Sequence[Promised]) -> Iterator[Violation]:
    there = {held.id for seen in nodes for held in seen.machines}
    for promise in promised:
        if promise.machine not in there:
            yield Violation(Invariant.KEPT, promise.machine, f"no node has it; it was the answer to {promise.order}")


def _not_oversold(nodes: Sequence[NodeSeen]) -> Iterator[Violation]:
    for seen in nodes:
        held = NOTHING
        for machine in seen.machines:
            held = held.plus(machine.holds)
        for used in (held, seen.used or held):
            missing = shortfall(seen.capacity, NOTHING, used)
            if not missing:
                continue
            yield Violation(
                Invariant.NOT_OVERSOLD, seen.node, f"its machines hold {shortfall_text(missing)} more than it has"
            )
            break


def _converged(nodes: Sequence[NodeSeen]) -> Iterator[Violation]:
    asked = [seen for seen in nodes if seen.rows is not None]
    for one, other in pairwise(asked):
        assert one.rows is not None and other.rows is not None
        for reader, rows in ((one, one.rows - other.rows), (other, other.rows - one.rows)):
            if rows:
                some = ", ".join(map(str, sorted(rows, key=str)[:_SHOWN]))
                yield Violation(
                    Invariant.CONVERGED,
                    reader.node,
                    f"it has {len(rows)} rows that {(other if reader is one else one).node} has not: {some}",
                )


def _started_once(started: Sequence[Started]) -> Iterator[Violation]:
    times: Mapping[tuple[MachineId, float], list[MachineId]] = defaultdict(list)
    for each in started:
        times[each.machine, each.seen].append(each.spare)
    for (machine, _), spares in sorted(times.items()):
        if len(spares) > 1:
            yield Violation(Invariant.SPARE_ONCE, machine, f"started in its place: {', '.join(sorted(spares))}")
