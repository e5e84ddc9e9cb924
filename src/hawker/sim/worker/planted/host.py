"""Planted bugs of the host: drivers, root filesystems, networks, volumes and copies that do not keep their contract."""

from collections.abc import Callable
from typing import Any, cast

from hawker.errors import SnapshotLost
from hawker.ids import MachineId, SnapshotId, VolumeId
from hawker.record.machine import Network
from hawker.runtime.driver import Exit, Features, Inspection, Phase, ProcessPhase, ProcessState
from hawker.runtime.fake_driver import FakeDriver
from hawker.runtime.fake_host import FakeHost
from hawker.runtime.spec import InstanceSpec
from hawker.sim.node.fake_host import SimHost
from hawker.sim.node.fake_volumes import FakeCopies, FakeVolumes
from hawker.volume.disks import Copies, Disk, Disks
from hawker.worker.lifecycle.host_adapters import Networks, Rootfs


class _HostDriver(FakeDriver):
    def __init__(self, host: FakeHost, features: Features) -> None:
        super().__init__(host, features)
        assert isinstance(host, SimHost)
        self._sim_host = host


class TrustsPids(_HostDriver):
    """Takes a process for the machine's because it has the id that the machine's had."""

    async def recover(self, machine_id: MachineId) -> Inspection:
        seen, here = await super().recover(machine_id), self._sim_host.look(machine_id)
        if here is None or here.pid not in self._sim_host.strangers:
            return seen
        return Inspection(phase=Phase.RUNNING, instance_id=here.spec.instance_id, pid=here.pid)

    async def wait(self, machine_id: MachineId) -> Exit:
        here = self._sim_host.look(machine_id)
        if here is not None and here.pid in self._sim_host.strangers:
            await self._sim_host.clock.sleep(10.0**9)
        return await super().wait(machine_id)


class Forgetful(_HostDriver):
    """Knows nothing of what ended before it was made."""

    def __init__(self, host: FakeHost, features: Features) -> None:
        super().__init__(host, features)
        self._missed = {each for each in host.machines() if _has_ended(host, each)}

    async def recover(self, machine_id: MachineId) -> Inspection:
        seen = await super().recover(machine_id)
        missed = machine_id in self._missed and seen.phase is Phase.EXITED
        return Inspection(phase=Phase.ABSENT) if missed else seen

    async def start(self, spec: InstanceSpec) -> Inspection:
        self._missed.discard(spec.machine_id)
        return await super().start(spec)


class LaunchesTwice(_HostDriver):
    """Does not look whether the instance is there already."""

    async def start(self, spec: InstanceSpec) -> Inspection:
        self._sim_host.launch(self._sim_host.place(spec))
        return await super().start(spec)


class KillsAtRecovery(_HostDriver):
    """Ends what runs when it is made, to begin with a clean host."""

    def __init__(self, host: FakeHost, features: Features) -> None:
        super().__init__(host, features)
        for machine_id in host.machines():
            here = host.look(machine_id)
            if here is not None and here.phase is Phase.RUNNING:
                host.deliver(here, 9)


class NeverThaws(_HostDriver):
    """Says that it resumed."""

    async def resume(self, machine_id: MachineId) -> None:
        await self.inspect(machine_id)


class NeverFreezes(_HostDriver):
    """Says that it suspended."""

    async def suspend(self, machine_id: MachineId) -> None:
        await self.inspect(machine_id)


class KeepsMemories(_HostDriver):
    """Leaves the snapshot that it resumed from."""

    async def resume(self, machine_id: MachineId) -> None:
        saved = machine_id in self._sim_host.memories
        await super().resume(machine_id)
        if saved:
            self._sim_host.memories.add(machine_id)


class StartsColdUnsaid(_HostDriver):
    """Starts anew what it cannot resume, and says that it went on."""

    async def resume(self, machine_id: MachineId) -> None:
        here = self._sim_host.look(machine_id)
        try:
            await super().resume(machine_id)
        except SnapshotLost:
            assert here is not None
            self._sim_host.launch(self._sim_host.place(here.spec))


class LimitsNothing(_HostDriver):
    """Says that it limits."""

    async def limit_memory(self, machine_id: MachineId, limit_mib: int) -> None:
        await self.inspect(machine_id)


class _KeepsDirectories:
    def __init__(self, rootfs: Rootfs) -> None:
        self._rootfs = rootfs

    async def remove(self, machine_id: MachineId) -> None:
        await self._rootfs.unmount(machine_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rootfs, name)


def keeps_directories(rootfs: Rootfs) -> Rootfs:
    """Unmounts and leaves the directory."""
    return cast(Rootfs, _KeepsDirectories(rootfs))


class _KeepsNetworks:
    def __init__(self, networks: Networks) -> None:
        self._networks = networks
        self._mine: set[MachineId] = set()

    async def ensure(self, machine_id: MachineId, network: Network) -> str:
        self._mine.add(machine_id)
        return await self._networks.ensure(machine_id, network)

    async def delete(self, machine_id: MachineId) -> None:
        if machine_id in self._mine:
            await self._networks.delete(machine_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._networks, name)


def keeps_networks(networks: Networks) -> Networks:
    """Removes only networks that it made itself, not those of an earlier daemon."""
    return cast(Networks, _KeepsNetworks(networks))


def _has_ended(host: FakeHost, machine_id: MachineId) -> bool:
    here = host.look(machine_id)
    return here is not None and here.phase is Phase.EXITED


# Hosts that do not keep the contract of volumes.


class _DisksOver:
    def __init__(self, disks: Disks) -> None:
        self._disks = disks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disks, name)


class _MakesAnew(_DisksOver):
    async def make(self, disk: Disk) -> None:
        assert isinstance(self._disks, FakeVolumes)
        self._disks.files.pop(disk.id, None)
        await self._disks.make(disk)


def makes_anew(disks: Disks) -> Disks:
    """Begins with an empty file whenever it is asked, also when there is one."""
    return cast(Disks, _MakesAnew(disks))


class _StaysMounted(_DisksOver):
    def __init__(self, disks: Disks) -> None:
        super().__init__(disks)
        self._mine: set[VolumeId] = set()

    async def mount(self, disk: Disk) -> str:
        self._mine.add(disk.id)
        return await self._disks.mount(disk)

    async def unmount(self, volume_id: VolumeId, *, unless: Callable[[], bool] | None = None) -> None:
        if volume_id in self._mine:
            await self._disks.unmount(volume_id)


def stays_mounted(disks: Disks) -> Disks:
    """Gives back only what it has mounted itself, not what an earlier daemon did."""
    return cast(Disks, _StaysMounted(disks))


class _GrowsFilesOnly(_DisksOver):
    async def grow(self, disk: Disk) -> bool:
        return True


def grows_nothing(disks: Disks) -> Disks:
    """Says that it has grown what it has not."""
    return cast(Disks, _GrowsFilesOnly(disks))


# Hosts that do not keep the contract of copies.


class _CopiesOver:
    def __init__(self, copies: Copies) -> None:
        self._copies = copies

    def __getattr__(self, name: str) -> Any:
        return getattr(self._copies, name)


class _TakesAnew(_CopiesOver):
    async def take(self, volume_id: VolumeId, snapshot_id: SnapshotId) -> int:
        assert isinstance(self._copies, FakeCopies)
        self._copies.snapshots.pop(snapshot_id, None)
        return await self._copies.take(volume_id, snapshot_id)


def takes_anew(copies: Copies) -> Copies:
    """A snapshot that is there already is replaced by one of now."""
    return cast(Copies, _TakesAnew(copies))


# Drivers that do not keep what they promise of a machine's containers.


class NeverConcludes(FakeDriver):
    """Says that it ended the machine, and leaves it."""

    async def conclude(self, machine_id: MachineId, index: int) -> Exit:
        states = await self.process_states(machine_id)
        exit = states[index].exit
        assert exit is not None
        return exit


class ForgetsRuns(FakeDriver):
    """Takes what ended before it was made for what never ran, and starts it once more."""

    def __init__(self, host: FakeHost, features: Features) -> None:
        super().__init__(host, features)
        seen = {machine_id: host.look(machine_id) for machine_id in host.machines()}
        self._missed = {
            (machine_id, process.index): process.run
            for machine_id, instance in seen.items()
            for process in (instance.processes if instance is not None else ())
            if process.state is ProcessPhase.EXITED
        }

    async def process_states(self, machine_id: MachineId) -> tuple[ProcessState, ...]:
        states = await super().process_states(machine_id)
        return tuple(
            ProcessState(name=state.name) if self._missed.get((machine_id, index)) == state.run > 0 else state
            for index, state in enumerate(states)
        )

    async def start_process(self, machine_id: MachineId, index: int, run: int) -> ProcessState:
        missed = self._missed.pop((machine_id, index), 0)
        return await super().start_process(machine_id, index, run + missed)
