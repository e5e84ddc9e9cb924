"""The product's own invariants, of a stall, as assertions."""

from hawker.proof import invariants
from hawker.sim.node.world import MemoryWorld
from hawker.store.contract import Reader


def check_store(reader: Reader) -> None:
    """At every moment between two transactions."""
    assert invariants.of_store(reader) == []


def check_at_rest(stall: MemoryWorld) -> None:
    """When nothing is under way: what runs is what the records say, and nothing else is on the host."""
    with stall.store.snapshot() as reader:
        assert invariants.at_rest(reader, stall.seen()) == []
