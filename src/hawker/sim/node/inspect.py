"""What an inspector sees on the simulated host, for the invariants. It also knows what was launched before."""

from pathlib import Path

from hawker.ids import MachineId, VolumeId
from hawker.proof.host_state import HostState
from hawker.runtime.driver import ProcessState
from hawker.runtime.fake_host import Instance
from hawker.runtime.spec import Ends, InstanceSpec
from hawker.sim.node.copies import FakeCopies
from hawker.sim.node.fake_host import FakeNetworks, FakeRootfs, SimHost
from hawker.sim.node.fake_volumes import FakeVolumes


def look(
    host: SimHost, rootfs: FakeRootfs, networks: FakeNetworks, disks: FakeVolumes, copies: FakeCopies
) -> HostState:
    launched_twice = {
        machine_id
        for machine_id, instances in host.ever.items()
        if any(host.launched[instance.spec.instance_id] > 1 for instance in instances)
    }
    return HostState(
        running=host.running(),
        suspended=host.suspended(),
        limits=host.limits(),
        gpus=host.gpus(),
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
        processes=_processes(host),
        volumes={volume_id: block.size_bytes for volume_id, block in disks.files.items()},
        volumes_mounted=frozenset(disks.attached),
        volumes_remade=frozenset(volume_id for volume_id, count in disks.made.items() if count > 1),
        snapshots=frozenset(copies.snapshots),
        snapshots_retaken=frozenset(snapshot_id for snapshot_id, count in copies.taken.items() if count > 1),
        uses=volumes_used(host),
        memories=frozenset(host.memories),
    )


def _processes(host: SimHost) -> dict[MachineId, tuple[ProcessState, ...]]:
    instances = [host.look(machine_id) for machine_id in host.running()]
    return {
        instance.spec.machine_id: tuple(process.told() for process in instance.processes)
        for instance in instances
        if instance is not None and instance.spec.ends is Ends.TOLD
    }


def volumes_used(host: SimHost) -> dict[MachineId, VolumeId]:
    """By what running instances were given to mount."""
    instances = [instance for machine_id in host.running() if (instance := host.look(machine_id)) is not None]
    return {each.machine_id: VolumeId(Path(source).parent.name) for each, source in map(_source, instances) if source}


def _source(instance: Instance) -> tuple[InstanceSpec, str]:
    spec = instance.spec
    return spec, next(iter([*(each.source for each in spec.mounts), *(each.file for each in spec.volumes)]), "")
