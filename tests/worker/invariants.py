"""The product's own invariants, of a stall, as assertions."""

from hawker.proof import invariants
from hawker.proof.host_state import HostState
from hawker.store.contract import Reader
from tests.worker.stall import Stall


def check_store(reader: Reader) -> None:
    """At every moment between two transactions."""
    assert invariants.of_store(reader) == []


def check_at_rest(stall: Stall) -> None:
    """When nothing is under way: what runs is what the records say, and nothing else is on the host."""
    with stall.store.snapshot() as reader:
        assert invariants.at_rest(reader, host_state(stall)) == []


def host_state(stall: Stall) -> HostState:
    host = stall.host
    launched_twice = {
        machine_id
        for machine_id, instances in host.ever.items()
        if any(host.launched[instance.spec.instance_id] > 1 for instance in instances)
    }
    return HostState(
        running=host.running(),
        mounted={machine_id: instance for machine_id, (instance, _) in stall.rootfs.mounted.items()},
        instances=frozenset(host.machines()),
        directories=frozenset(stall.rootfs.directories),
        networks=frozenset(stall.networks.plugged),
        ended={
            machine_id: [instance.exit for instance in instances if instance.exit is not None]
            for machine_id, instances in host.ever.items()
        },
        doubled=frozenset({*host.doubled, *launched_twice}),
    )
