"""The simulated host. It outlives the daemon, and every call of it is an edge where that may die."""

from collections import Counter, defaultdict

from hawker.clock import Clock
from hawker.ids import Digest, InstanceId, MachineId
from hawker.runtime.driver import InstanceSpec, Phase
from hawker.runtime.fake_host import FakeHost, Fault, Instance
from hawker.sim.fuse import Death, Fuse
from hawker.worker.records import Network


class Cellar(FakeHost):
    """The fake host, with edges, and with a memory of what was ever launched."""

    def __init__(self, clock: Clock, fuse: Fuse) -> None:
        super().__init__(clock)
        self._fuse = fuse
        self.launched: Counter[InstanceId] = Counter()
        self.ever: defaultdict[MachineId, list[Instance]] = defaultdict(list)
        self.doubled: list[MachineId] = []

    def fault(self, call: str) -> Fault:
        asked = super().fault(call)
        before, after = self._fuse.burns(), self._fuse.burns()
        return Fault(error=Death(), after=after) if before or after else asked

    def place(self, spec: InstanceSpec) -> Instance:
        here = self.look(spec.machine_id)
        if here is not None and here.phase is Phase.RUNNING:
            self.doubled.append(spec.machine_id)
        return super().place(spec)

    def launch(self, instance: Instance) -> None:
        self.launched[instance.spec.instance_id] += 1
        self.ever[instance.spec.machine_id].append(instance)
        super().launch(instance)

    def running(self) -> dict[MachineId, InstanceId]:
        here = {machine_id: self.look(machine_id) for machine_id in self.machines()}
        return {key: it.spec.instance_id for key, it in here.items() if it is not None and it.phase is Phase.RUNNING}


class Shelves:
    """Keeps `deps.Rootfs` in memory: what is mounted for which instance, and whose directories are there."""

    def __init__(self, fuse: Fuse) -> None:
        self._fuse = fuse
        self.mounted: dict[MachineId, tuple[InstanceId, Digest]] = {}
        self.directories: set[MachineId] = set()
        self.forgotten: list[Digest] = []
        self.swept = 0
        self.withdrawn = False

    async def mount(self, machine_id: MachineId, instance_id: InstanceId, image: Digest) -> str:
        await self._fuse.pass_edge()
        self.directories.add(machine_id)
        self.mounted[machine_id] = (instance_id, image)
        await self._fuse.pass_edge()
        return f"/machines/{machine_id}/rootfs"

    async def unmount(self, machine_id: MachineId) -> None:
        await self._fuse.pass_edge()
        self.mounted.pop(machine_id, None)
        await self._fuse.pass_edge()

    async def remove(self, machine_id: MachineId) -> None:
        await self.unmount(machine_id)
        self.directories.discard(machine_id)
        await self._fuse.pass_edge()

    async def forget_image(self, image: Digest) -> None:
        self.forgotten.append(image)

    async def sweep(self) -> None:
        self.swept += 1

    async def withdraw(self) -> None:
        self.withdrawn = True

    async def list(self) -> list[MachineId]:
        return sorted(self.directories)


class Wires:
    """Keeps `deps.Networks` in memory."""

    def __init__(self, fuse: Fuse) -> None:
        self._fuse = fuse
        self.plugged: dict[MachineId, Network] = {}
        self.swept = 0
        self.withdrawn = False

    def private_ip(self, network_id: int, machine_id: MachineId) -> str:
        return f"fdaa::{machine_id[:4]}:{machine_id[4:8]}:2"

    async def ensure(self, machine_id: MachineId, network: Network) -> str:
        await self._fuse.pass_edge()
        self.plugged[machine_id] = network
        await self._fuse.pass_edge()
        return f"/netns/{machine_id}"

    async def delete(self, machine_id: MachineId) -> None:
        await self._fuse.pass_edge()
        self.plugged.pop(machine_id, None)
        await self._fuse.pass_edge()

    async def sweep(self) -> None:
        self.swept += 1

    async def withdraw(self) -> None:
        self.withdrawn = True

    async def list(self) -> list[MachineId]:
        return sorted(self.plugged)
