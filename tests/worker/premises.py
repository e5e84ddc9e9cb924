"""What a worker in a test stands on: a host that outlives it, whose every call is an edge where the daemon may die."""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import anyio.lowlevel

from hawker.clock import Clock
from hawker.fsm.contract import Flow, Step
from hawker.ids import Digest, InstanceId, MachineId
from hawker.runtime.driver import InstanceSpec, Phase
from hawker.runtime.fake_host import FakeHost, Fault, Instance
from hawker.worker.records import Network

T = TypeVar("T")


class Death(BaseException):
    """The daemon is killed: no code of it may catch this."""


class Fuse:
    """Counts the edges of all effects on the host, two to an effect, and burns through at a chosen one; or at a chosen
    place, as `create.rootfs inside`. `passed` are the places that were reached."""

    def __init__(self) -> None:
        self.edges = 0
        self.burns_at: int | None = None
        self.burns_in: str | None = None
        self.step = ""
        self.passed: set[str] = set()

    def burns(self) -> bool:
        self.edges += 1
        return self.edges == self.burns_at or self._is_place(f"{self.step} inside")

    def reach(self, place: str) -> None:
        if self._is_place(place):
            raise Death

    def _is_place(self, place: str) -> bool:
        self.passed.add(place)
        if place != self.burns_in:
            return False
        self.burns_in = None
        return True

    async def pass_edge(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self.burns():
            raise Death


def fused(flow: Flow[Any], fuse: Fuse) -> Flow[Any]:
    """The same flow, with an edge before and after each step and each undo."""

    def between(name: str, call: Callable[[Any], Awaitable[T]]) -> Callable[[Any], Awaitable[T]]:
        async def called(context: object) -> T:
            fuse.reach(f"{name} before")
            fuse.step = name
            found = await call(context)
            fuse.step = ""
            fuse.reach(f"{name} after")
            return found

        return called

    def step(row: Step) -> Step:
        name = f"{flow.name}.{row.name}"
        undo = row.undo and between(f"{name} undo", row.undo)
        return replace(row, do=between(name, row.do), undo=undo)

    return replace(flow, steps=tuple(map(step, flow.steps)))


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
