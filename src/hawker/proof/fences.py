"""What holds of network policies at rest: what the host enforces is what the records say, for every machine."""

from collections.abc import Iterator, Sequence

from hawker.host.network_policy import PacketFilter
from hawker.netpolicy.enforcement import wanted
from hawker.proof.violation import Invariant, Violation
from hawker.store.contract import Reader


def fences_at_rest(reader: Reader, standing: Sequence[PacketFilter]) -> Iterator[Violation]:
    """Only of a node that compares host and store: it may be what mends the last of it."""
    promised, there = {each.machine_id: each for each in wanted(reader)}, {each.machine_id: each for each in standing}
    for machine_id in sorted(promised.keys() | there.keys()):
        if promised.get(machine_id) != there.get(machine_id):
            what = f"policies want {promised.get(machine_id)}, in force is {there.get(machine_id)}"
            yield Violation(Invariant.FENCED, machine_id, what)
