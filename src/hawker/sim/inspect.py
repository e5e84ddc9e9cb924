"""What an inspector sees on the simulated host, for the invariants. It also knows what was launched before."""

from hawker.proof.host_state import HostState
from hawker.sim.host import Cellar, Shelves, Wires


def look(host: Cellar, rootfs: Shelves, networks: Wires) -> HostState:
    launched_twice = {
        machine_id
        for machine_id, instances in host.ever.items()
        if any(host.launched[instance.spec.instance_id] > 1 for instance in instances)
    }
    return HostState(
        running=host.running(),
        mounted={machine_id: instance for machine_id, (instance, _) in rootfs.mounted.items()},
        instances=frozenset(host.machines()),
        directories=frozenset(rootfs.directories),
        networks=frozenset(networks.plugged),
        ended={
            machine_id: [instance.exit for instance in instances if instance.exit is not None]
            for machine_id, instances in host.ever.items()
        },
        doubled=frozenset({*host.doubled, *launched_twice}),
        lost=dict(host.lost),
        felled=tuple(host.felled),
    )
