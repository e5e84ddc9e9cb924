"""Drivers, root filesystems and networks that do not keep their contract."""

from typing import Any, cast

from hawker.errors import SnapshotLost
from hawker.ids import MachineId
from hawker.record.machine import Network
from hawker.runtime.driver import Exit, Features, Inspection, Phase
from hawker.runtime.fake import FakeDriver
from hawker.runtime.fake_host import FakeHost
from hawker.runtime.spec import InstanceSpec
from hawker.sim.host import Cellar
from hawker.worker.lifecycle.host_adapters import Networks, Rootfs


class _Driver(FakeDriver):
    def __init__(self, host: FakeHost, features: Features) -> None:
        super().__init__(host, features)
        assert isinstance(host, Cellar)
        self._cellar = host


class TrustsPids(_Driver):
    """Takes a process for the machine's because it has the id that the machine's had."""

    async def recover(self, machine_id: MachineId) -> Inspection:
        seen, here = await super().recover(machine_id), self._cellar.look(machine_id)
        if here is None or here.pid not in self._cellar.strangers:
            return seen
        return Inspection(phase=Phase.RUNNING, instance_id=here.spec.instance_id, pid=here.pid)

    async def wait(self, machine_id: MachineId) -> Exit:
        here = self._cellar.look(machine_id)
        if here is not None and here.pid in self._cellar.strangers:
            await self._cellar.clock.sleep(10.0**9)
        return await super().wait(machine_id)


class Forgetful(_Driver):
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


class LaunchesTwice(_Driver):
    """Does not look whether the instance is there already."""

    async def start(self, spec: InstanceSpec) -> Inspection:
        self._cellar.launch(self._cellar.place(spec))
        return await super().start(spec)


class KillsAtRecovery(_Driver):
    """Ends what runs when it is made, to begin with a clean host."""

    def __init__(self, host: FakeHost, features: Features) -> None:
        super().__init__(host, features)
        for machine_id in host.machines():
            here = host.look(machine_id)
            if here is not None and here.phase is Phase.RUNNING:
                host.deliver(here, 9)


class NeverThaws(_Driver):
    """Says that it resumed."""

    async def resume(self, machine_id: MachineId) -> None:
        await self.inspect(machine_id)


class NeverFreezes(_Driver):
    """Says that it suspended."""

    async def suspend(self, machine_id: MachineId) -> None:
        await self.inspect(machine_id)


class KeepsMemories(_Driver):
    """Leaves the snapshot that it resumed from."""

    async def resume(self, machine_id: MachineId) -> None:
        saved = machine_id in self._cellar.memories
        await super().resume(machine_id)
        if saved:
            self._cellar.memories.add(machine_id)


class StartsColdUnsaid(_Driver):
    """Starts anew what it cannot resume, and says that it went on."""

    async def resume(self, machine_id: MachineId) -> None:
        here = self._cellar.look(machine_id)
        try:
            await super().resume(machine_id)
        except SnapshotLost:
            assert here is not None
            self._cellar.launch(self._cellar.place(here.spec))


class LimitsNothing(_Driver):
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
