"""The driver that keeps every promise in memory, for tests and for the simulator: no process, no file, one `Clock`.

It remembers nothing itself: instances are in the `FakeHost`, so a daemon's restart is a new driver over the same
host. What a command does is there, too.
"""

import math
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
from msgspec.structs import replace

from hawker.errors import BadRequest, NotFound, NotServed, SnapshotLost, Unavailable, WrongState
from hawker.ids import MachineId
from hawker.runtime.driver import (
    ALIVE,
    Attachment,
    ExecSpec,
    Exit,
    Features,
    Inspection,
    LostPart,
    Memory,
    OutputChunk,
    Phase,
    ProcessInfo,
    ProcessState,
    Stats,
    Suspension,
    VolumeUsage,
    may_begin,
    process_of,
    refuse_conclusion,
    refuse_containers,
)
from hawker.runtime.fake_host import FakeExecSession, FakeHost, Instance, at_most, contents, last_lines, read_command
from hawker.runtime.pilot.messages import signal_number
from hawker.runtime.saved_memory import SavedBy
from hawker.runtime.spec import InstanceLimits, InstanceSpec, VolumeDisk

BLOCK_BYTES = 4096
MEMORY_FILE, MEMORY_BYTES = "memory", 1 << 20
"""The name of the one file of a suspended machine's memory, and its size in bytes."""
_LOST = "the snapshot cannot be used: its checksum does not match"
_KILLED = 128 + 9
_OUTPUT_LIMIT = 4 << 20


class FakeDriver:
    """Keeps `Driver`, `HostView`, `GuestVolumes` and `SavedMemories`: a daemon's view of a `FakeHost`."""

    name = "fake"

    def __init__(self, host: FakeHost, features: Features | None = None) -> None:
        given = features or Features(
            rootfs=True, network=False, limits=True, suspend=Suspension.FREEZE, lacks_swap="", containers=True
        )
        self.features = replace(given, output_in_memory=True)
        self._host = host

    async def check(self) -> None:
        async with _Call(self._host, "check"):
            pass

    async def prepare(self, spec: InstanceSpec) -> None:
        async with _Call(self._host, "prepare"):
            self._place(spec)

    async def start(self, spec: InstanceSpec) -> Inspection:
        async with _Call(self._host, "start"):
            instance = self._place(spec)
            if instance.phase is Phase.PREPARED:
                self._host.launch(instance)
            if instance.phase is Phase.SUSPENDED:
                raise WrongState(f"machine {spec.machine_id} is suspended")
        return await self.inspect(spec.machine_id)

    def _place(self, spec: InstanceSpec) -> Instance:
        if spec.files and not self.features.rootfs:
            raise NotServed(f"the {self.name} driver cannot serve `files`: its machines have no root filesystem")
        refuse_containers(spec, self.name, self.features)
        here = self._host.look(spec.machine_id)
        if here is not None and here.spec.instance_id == spec.instance_id:
            return here
        if here is not None and here.phase in ALIVE:
            raise WrongState(f"machine {spec.machine_id} still has a running instance, {here.spec.instance_id}")
        return self._host.place(spec)

    async def recover(self, machine_id: MachineId) -> Inspection:
        async with _Call(self._host, "recover"):
            return _inspection(self._host.look(machine_id))

    async def inspect(self, machine_id: MachineId) -> Inspection:
        return _inspection(self._host.look(machine_id))

    async def wait(self, machine_id: MachineId) -> Exit:
        async with _Call(self._host, "wait"):
            return await self._ended(self._there(machine_id))

    async def stop(self, machine_id: MachineId, signal: str, timeout_s: float) -> Exit:
        async with _Call(self._host, "stop"):
            instance = self._there(machine_id)
            number = signal_number("SIGKILL" if machine_id in self._host.memories else signal)
            self._host.resume(instance)
            if instance.phase is Phase.RUNNING:
                instance.stopping = True
                self._host.deliver(instance, number)
            if instance.exit is None:
                await self._wait_until(instance.ended, self._host.clock.now() + timeout_s)
            if instance.exit is None:
                self._host.deliver(instance, signal_number("SIGKILL"))
            return await self._ended(instance)

    async def suspend(self, machine_id: MachineId) -> None:
        async with _Call(self._host, "suspend"):
            if self.features.suspend is None:
                raise NotServed(f"the {self.name} driver cannot suspend")
            self._host.suspend(self._alive(machine_id), saves=self.features.suspend is Suspension.SNAPSHOT)

    async def resume(self, machine_id: MachineId) -> None:
        async with _Call(self._host, "resume"):
            self._restore(self._alive(machine_id))

    def _restore(self, instance: Instance) -> None:
        """Let a suspended instance go on. Raises `SnapshotLost`, and it has ended, when its memory was spoilt."""
        machine_id = instance.spec.machine_id
        if machine_id not in self._host.memories or machine_id not in self._host.spoilt:
            return self._host.resume(instance)
        now = self._host.clock.now()
        self._host.lose(instance, Exit(exit_code=_KILLED, signal=9, exited_at=now, fault=_LOST))
        raise SnapshotLost(f"machine {machine_id} cannot be resumed: {_LOST}")

    async def suspended(self) -> frozenset[MachineId]:
        return frozenset(each for each in self._host.machines() if self._phase(each) is Phase.SUSPENDED)

    async def signal(self, machine_id: MachineId, signal: int) -> None:
        async with _Call(self._host, "signal"):
            self._host.deliver(self._running(machine_id), signal)

    async def exec(self, machine_id: MachineId, spec: ExecSpec) -> "FakeExecSession":
        async with _Call(self._host, "exec"):
            if not spec.argv:
                raise BadRequest("a command is needed")
            workload = self._running(machine_id).spec
            beside = process_of(workload, spec.process)
            if spec.copy is not None:
                raise NotServed(f"the {self.name} driver has no files to copy")
            script = read_command(spec.argv, beside.env | spec.env, contents(workload.files))
            return FakeExecSession(self._host.clock, script)

    async def attach(self, machine_id: MachineId, process: int, *, rows: int = 0, cols: int = 0) -> Attachment:
        raise NotServed(f"the {self.name} driver cannot connect input to a machine's process")

    async def process_states(self, machine_id: MachineId) -> tuple[ProcessState, ...]:
        async with _Call(self._host, "process_states"):
            instance = self._host.look(machine_id)
            if instance is None:
                raise NotFound(f"machine {machine_id} has no instance")
            return _states(instance)

    async def await_process_change(
        self, machine_id: MachineId, seen: tuple[ProcessState, ...]
    ) -> tuple[ProcessState, ...]:
        while True:
            states = await self.process_states(machine_id)
            instance = self._host.look(machine_id)
            if instance is None or instance.phase not in ALIVE or states != seen:
                return states
            await self._wait_until(instance.changed, instance.next_end)

    async def start_process(self, machine_id: MachineId, index: int, run: int) -> ProcessState:
        async with _Call(self._host, "start_process"):
            instance = self._running(machine_id)
            process_of(instance.spec, index)
            if may_begin(machine_id, instance.processes[index].told(), run):
                self._host.begin(instance, index)
            return instance.processes[index].told()

    async def stop_process(self, machine_id: MachineId, index: int, signal: str, timeout_s: float) -> ProcessState:
        async with _Call(self._host, "stop_process"):
            instance, number = self._there(machine_id), signal_number(signal)
            process_of(instance.spec, index)
            process = instance.processes[index]
            until = self._host.clock.now() + timeout_s
            if process.running:
                self._host.deliver_to(instance, index, number)
            while process.running and self._host.clock.now() < until:
                await self._wait_until(instance.changed, min(until, process.ends_at))
                self._host.look(machine_id)
            if process.running:
                self._host.deliver_to(instance, index, signal_number("SIGKILL"))
            return process.told()

    async def conclude(self, machine_id: MachineId, index: int) -> Exit:
        async with _Call(self._host, "conclude"):
            instance = self._there(machine_id)
            process_of(instance.spec, index)
            if instance.exit is None:
                refuse_conclusion(machine_id, instance.processes[index].told())
                self._host.conclude(instance, index)
            return await self._ended(instance)

    async def stats(self, machine_id: MachineId) -> Stats:
        instance = self._running(machine_id)
        assert instance.started_at is not None
        busy_s = self._host.clock.now() - instance.started_at
        return Stats(cpu_s=busy_s, memory_bytes=1 << 20, pids=1 + len(instance.running))

    async def memory(self, machine_id: MachineId) -> Memory:
        instance = self._alive(machine_id)
        limit_mib = self._limits(instance).memory_mib
        return Memory(limit_mib=limit_mib, available_mib=max(0, limit_mib - self._host.used_mib(machine_id)))

    async def limit_memory(self, machine_id: MachineId, limit_mib: int) -> None:
        async with _Call(self._host, "limit_memory"):
            instance, used_mib = self._alive(machine_id), self._host.used_mib(machine_id)
            if limit_mib < used_mib:
                raise WrongState(f"the machine uses {used_mib} MB that it cannot give back")
            limits = msgspec.structs.replace(self._limits(instance), memory_mib=limit_mib)
            instance.spec = msgspec.structs.replace(instance.spec, limits=limits)

    async def reclaim_memory(self, machine_id: MachineId, amount_mib: int) -> int:
        self._limits(self._alive(machine_id))
        return self._host.drop_caches(machine_id, amount_mib)

    def _limits(self, instance: Instance) -> InstanceLimits:
        if not self.features.limits:
            raise NotServed(f"the {self.name} driver has no limits")
        return instance.spec.limits

    async def processes(self, machine_id: MachineId) -> tuple[ProcessInfo, ...]:
        instance = self._running(machine_id)
        assert instance.started_at is not None
        return tuple(
            ProcessInfo(
                pid=2 + index,
                started_at=instance.started_at,
                command=" ".join(process.argv),
                cwd=process.cwd,
                cpu_s=0.0,
                rss_bytes=1 << 20,
                container=process.name,
            )
            for index, process in enumerate(instance.spec.processes)
            if instance.processes[index].running
        )

    def output(self, machine_id: MachineId, *, after: int = -1, tail: int | None = None) -> list[OutputChunk]:
        instance = self._host.look(machine_id)
        chunks = [] if instance is None else [chunk for chunk in instance.chunks if chunk.position > after]
        return last_lines(at_most(chunks, _OUTPUT_LIMIT), tail)

    async def destroy(self, machine_id: MachineId) -> None:
        async with _Call(self._host, "destroy"):
            self._host.remove(machine_id)

    async def list(self) -> list[MachineId]:
        return sorted({*self._host.machines(), *self._host.orphans})

    async def running(self) -> frozenset[MachineId]:
        return frozenset(each for each in self._host.machines() if self._phase(each) in ALIVE)

    async def orphans(self) -> frozenset[MachineId]:
        return frozenset(self._host.orphans)

    async def end_orphans(self, machine_id: MachineId) -> None:
        self._host.orphans.discard(machine_id)

    async def lost(self, machine_ids: Collection[MachineId]) -> dict[MachineId, frozenset[LostPart]]:
        worn = {each: frozenset(self._host.worn.get(each, ())) for each in machine_ids}
        return {each: parts for each, parts in worn.items() if parts and self._phase(each) in ALIVE}

    async def mend(self, machine_id: MachineId) -> None:
        async with _Call(self._host, "mend"):
            self._host.worn.get(machine_id, set()).discard(LostPart.CGROUP)

    async def grow_volume(self, machine_id: MachineId, name: str, size_bytes: int) -> None:
        self._volume(machine_id, name)
        self._host.volume_sizes[machine_id, name] = size_bytes

    @asynccontextmanager
    async def freeze_volume(self, machine_id: MachineId, name: str, timeout_s: float) -> AsyncIterator[None]:
        """Hold the volume still within the block. An instance that ends meanwhile lets go."""
        instance, began = self._volume(machine_id, name)[0], self._host.clock.monotonic()
        self._host.still.add((machine_id, name))
        try:
            yield
        finally:
            self._host.still.discard((machine_id, name))
        if instance.exit is not None or self._host.clock.monotonic() - began > timeout_s:
            raise Unavailable(f"the guest of machine {machine_id} let go of its volume")

    async def volume_usage(self, machine_id: MachineId, name: str) -> VolumeUsage:
        self._volume(machine_id, name)
        blocks = self._host.volume_sizes.get((machine_id, name), 0) // BLOCK_BYTES
        return VolumeUsage(block_size=BLOCK_BYTES, blocks=blocks, blocks_free=blocks, blocks_avail=blocks)

    async def trim_volume(self, machine_id: MachineId, name: str, start: int, count: int) -> None:
        if name:
            self._volume(machine_id, name)
        self._host.trimmed[machine_id, name] = start + count

    async def resumes(self) -> SavedBy:
        return self._host.saved_by

    async def memory_files(self, machine_id: MachineId) -> Mapping[str, int]:
        return {MEMORY_FILE: MEMORY_BYTES} if machine_id in self._host.memories else {}

    def memory_place(self, machine_id: MachineId, name: str) -> Path:
        return Path(f"/machines/{machine_id}/run/{name}")

    def came(self, name: str) -> str:
        return f"{name}.came"

    async def make_place(self, machine_id: MachineId) -> None:
        """Does nothing: the fake host has no directories."""

    async def take_in(self, spec: InstanceSpec) -> None:
        async with _Call(self._host, "take_in"):
            if self._phase(spec.machine_id) is Phase.SUSPENDED:
                return
            if self._host.arrived.get(spec.machine_id, -1) < 0:
                raise SnapshotLost(f"machine {spec.machine_id} cannot go on: {_LOST}")
            self._arrive(spec)

    def _arrive(self, spec: InstanceSpec) -> None:
        """An instance that was suspended at another host is suspended here: its memory has come."""
        instance, now = self._host.place(spec), self._host.clock.now()
        instance.started_at = now
        for process in instance.processes:
            if not process.spec.held:
                process.begin(now, contents(spec.files))
        self._host.put_back(instance, self._host.arrived.pop(spec.machine_id))

    async def image_digest(self, file: Path) -> str:
        return file.name

    def _volume(self, machine_id: MachineId, name: str) -> tuple[Instance, VolumeDisk]:
        instance = self._host.look(machine_id)
        found = [] if instance is None else [volume for volume in instance.spec.volumes if volume.name == name]
        if instance is None or not found:
            raise NotFound(f"machine {machine_id} has no volume {name}")
        if instance.phase is not Phase.RUNNING:
            raise WrongState(f"machine {machine_id} does not run")
        return instance, found[0]

    def _phase(self, machine_id: MachineId) -> Phase:
        instance = self._host.look(machine_id)
        return Phase.ABSENT if instance is None else instance.phase

    def _there(self, machine_id: MachineId) -> Instance:
        instance = self._host.look(machine_id)
        if instance is None or instance.phase is Phase.PREPARED:
            raise NotFound(f"no instance of machine {machine_id} on this host")
        return instance

    def _alive(self, machine_id: MachineId) -> Instance:
        instance = self._there(machine_id)
        if instance.phase not in ALIVE:
            raise WrongState(f"machine {machine_id} is not running")
        return instance

    def _running(self, machine_id: MachineId) -> Instance:
        instance = self._alive(machine_id)
        if instance.phase is Phase.SUSPENDED:
            raise WrongState(f"machine {machine_id} is suspended")
        return instance

    async def _ended(self, instance: Instance) -> Exit:
        while instance.exit is None:
            await self._wait_until(instance.changed, instance.next_end)
            self._host.look(instance.spec.machine_id)
        return instance.exit

    async def _wait_until(self, event: anyio.Event, moment: float) -> None:
        """Return when the event has come or the moment has, whichever is first."""
        if math.isinf(moment):
            return await event.wait()
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                await event.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            await self._host.clock.sleep(moment - self._host.clock.now())
            tasks.cancel_scope.cancel()


class _Call:
    """One call of the driver, with the fault that the test asked for."""

    def __init__(self, host: FakeHost, name: str) -> None:
        self._host = host
        self._fault = host.fault(name)

    async def __aenter__(self) -> None:
        fault = self._fault
        await self._host.clock.sleep(fault.delay_s) if fault.delay_s else await anyio.lowlevel.checkpoint()
        if fault.error is not None and not fault.after:
            raise fault.error

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None and self._fault.error is not None:
            raise self._fault.error


def _states(instance: Instance) -> tuple[ProcessState, ...]:
    return tuple(process.told() for process in instance.processes)


def _inspection(instance: Instance | None) -> Inspection:
    if instance is None:
        return Inspection(phase=Phase.ABSENT)
    return Inspection(
        phase=instance.phase,
        instance_id=instance.spec.instance_id,
        pid=instance.pid if instance.phase in ALIVE else None,
        started_at=instance.started_at,
        exit=instance.exit,
    )
