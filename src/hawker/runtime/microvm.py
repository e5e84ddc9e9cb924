"""The drivers for microVMs: a machine is a virtual machine whose kernel starts the pilot as its process 1.

Here is what a VMM in a jail, a channel to the pilot inside and a kernel add to `PilotDriver`; what each call takes is
in the `microvm_*` files beside this one.
"""

import hashlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import msgspec

from hawker import guest
from hawker.clock import Clock
from hawker.errors import NotFound, Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.host.cgroup import Cgroups, find_hierarchies
from hawker.host.facts import cpu_model
from hawker.host.mount import mounts
from hawker.ids import MachineId, NodeId
from hawker.runtime import microvm_suspension, proc
from hawker.runtime.crun import Crun
from hawker.runtime.driver import Exit, Features, LostPart, Memory, Stats, VolumeUsage
from hawker.runtime.driver import Suspension as Means
from hawker.runtime.kernel.guest_kernel import GuestKernel
from hawker.runtime.microvm_launch import (
    MicroVMLauncher,
    VmmEvidence,
    bounds,
    is_final,
    judge,
    last_words,
    starts_again,
)
from hawker.runtime.microvm_memory import MicroVMMemory
from hawker.runtime.microvm_suspension import SnapshotSuspension, refuse_suspended
from hawker.runtime.pilot import requests
from hawker.runtime.pilot.connection import Connection
from hawker.runtime.pilot.driver import PilotDriver
from hawker.runtime.pilot.link import ANSWER_TIMEOUT_S
from hawker.runtime.pilot.rundir import RunDir, spec_of
from hawker.runtime.saved_memory import SavedBy
from hawker.runtime.spec import InstanceLimits, InstanceSpec, VolumeDisk
from hawker.runtime.vmm.cloud_hypervisor import CloudHypervisor
from hawker.runtime.vmm.contract import Jail, Vmm
from hawker.runtime.vmm.crun_jail import CrunJail
from hawker.runtime.vmm.firecracker import Firecracker
from hawker.runtime.vmm.jailer import FirecrackerJailer
from hawker.runtime.vmm.qemu import Qemu

_PASSES = 3
_GROW_TIMEOUT_S = 60.0
_TRIM_TIMEOUT_S = 10.0  # a move waits no longer
_UNACCELERATED = "no kernel came up with it here"


class MicroVMTechnology:
    """Runs machines as microVMs. Keeps `Technology`. Remembers nothing. `overhead_mib` is how many MiB a VMM may need
    beside its guest's memory; None: as many as this VMM is known to need."""

    contained = True

    def __init__(
        self, vmm: Vmm, jail: Jail, kernel: GuestKernel, cgroups: Cgroups, clock: Clock, overhead_mib: int | None
    ) -> None:
        self.name = vmm.name
        self.vmm = vmm
        self.channel = vmm.channel()
        self._jail = jail
        self._kernel = kernel
        self._cgroups = cgroups
        self._overhead_mib = vmm.overhead_mib if overhead_mib is None else overhead_mib
        self._launcher = MicroVMLauncher(vmm, jail, kernel, clock, self._overhead_mib)
        self._memory = MicroVMMemory(vmm, self.channel, cgroups, self._overhead_mib)
        self._suspension = SnapshotSuspension(vmm, jail, self.channel, self._launcher, self._memory, clock)
        self.features = Features(
            rootfs=True,
            network=True,
            limits=True,
            suspend=Means.SNAPSHOT if vmm.snapshots else None,
            kernel=True,
            lacks_swap="its machines have memory of their own, and no disk to swap to",
            driver=vmm.name,
            disks=True,
            gpus=vmm.gpus,
            overhead_mib=self._overhead_mib,
        )

    async def check(self) -> None:
        await self._vmm_and_jail()
        await in_thread(Pool.HOST, self._kernel.kernel)

    async def _vmm_and_jail(self) -> None:
        await self.vmm.check()
        await self._jail.check()

    async def lay_out(self, spec: InstanceSpec, run: RunDir) -> None:
        """Refuse a spec that cannot be run; the plan is made at the launch, for the kernel that is chosen then."""
        await self._launcher.plan(spec, run, 0)
        run.vmm.mkdir(mode=0o700)

    async def launch(self, spec: InstanceSpec, run: RunDir, fds: tuple[int, ...]) -> int:
        return await self._launcher.launch(spec, run, fds)

    async def kill(self, machine_id: MachineId, run: RunDir, pid: int | None) -> None:
        await self._suspension.give_up(run)

    async def clear(self, machine_id: MachineId, run: RunDir) -> None:
        await self._jail.clear(machine_id, run)

    async def suspend(self, run: RunDir) -> None:
        await self._suspension.suspend(run)

    async def resume(self, run: RunDir) -> None:
        await self._suspension.resume(run)

    def is_suspended(self, run: RunDir) -> bool:
        return run.saved()

    def thaw(self, machine_id: MachineId) -> None:
        """Does nothing: these machines are never frozen."""

    async def memory(self, run: RunDir) -> Memory:
        """The memory by the guest's own answer; for a suspended machine, as it was before."""
        if not run.saved():
            return await self._memory.read(run)
        spec = run.spec()
        assert spec is not None, "a living machine has a spec"
        available_mib = microvm_suspension.read_snapshot(run).available_mib
        return Memory(limit_mib=spec.limits.memory_mib, available_mib=available_mib)

    async def limit_memory(self, run: RunDir, limits: InstanceLimits) -> None:
        refuse_suspended(run)
        await self._memory.limit(run, limits)

    async def reclaim_memory(self, run: RunDir, amount_mib: int) -> int:
        return 0 if run.saved() else await self._memory.reclaim(run, amount_mib)

    def complete(self, run: RunDir, recorded: Exit | None, lost: Exit) -> Exit:
        return judge(self._evidence(run), recorded, lost)

    def failed_to_boot(self, run: RunDir) -> bool:
        return is_final(self._evidence(run))

    def starts_again(self, run: RunDir) -> bool:
        return starts_again(self._evidence(run))

    def _evidence(self, run: RunDir) -> VmmEvidence:
        return VmmEvidence(end=self._jail.ended(run), oom_kills=self._cgroups.oom_kills(run.machine_id))

    async def take_up(self, run: RunDir) -> None:
        """Let a guest go on that an earlier daemon left held still."""
        await self._suspension.let_go(run)

    def last_words(self, run: RunDir) -> str:
        return last_words(self._jail.console(run))

    def lost(self, run: RunDir) -> frozenset[LostPart]:
        return frozenset({LostPart.CGROUP} if self._cgroups.is_lost(run.machine_id) else ())

    def mend(self, spec: InstanceSpec, pid: int) -> None:
        """Gather all processes but the keeper, which is in no group. A thread that is begun meanwhile is found by the
        next pass."""
        for _ in range(_PASSES):
            pids = [entry.pid for entry in proc.descendants(pid) if entry.pid != pid]
            self._cgroups.gather(spec.machine_id, bounds(spec.limits, self._overhead_mib), pids)

    def stats(self, run: RunDir, pid: int) -> Stats:
        return msgspec.convert(self._cgroups.usage(run.machine_id), Stats, from_attributes=True)

    def remnants(self) -> list[MachineId]:
        """Machines whose control groups are left."""
        return self._cgroups.list()


def microvm_driver(
    name: str,
    node_id: NodeId,
    *,
    machines: Path,
    crun_state: Path,
    kernels: Path,
    clock: Clock,
    kernel: Path | None = None,
    accelerates: bool = False,
    overhead_mib: int | None = None,
) -> "MicroVMDriver":
    """The driver for microVMs on this node. `name` is the VMM's; `kernels` is `Place.kernels`, `kernel` the setting;
    `accelerates`: KVM was seen to boot."""
    cgroups = Cgroups(node_id, find_hierarchies(mounts()))
    own_jailer = name == Firecracker.name
    jail = FirecrackerJailer(cgroups) if own_jailer else CrunJail(Crun(crun_state, cgroups), cgroups)
    boots = GuestKernel(kernels, kernel, guest.pilot_path(), clock)
    technology = MicroVMTechnology(_vmm(name, clock, accelerates), jail, boots, cgroups, clock, overhead_mib)
    return MicroVMDriver(technology, machines, clock)


def _vmm(name: str, clock: Clock, accelerates: bool) -> Vmm:
    """What needs KVM asks nobody else for it: it was tried, or is taken for granted to look at all the rest."""
    if name == CloudHypervisor.name:
        return CloudHypervisor(clock, lambda: "" if accelerates else _UNACCELERATED)
    if name == Firecracker.name:
        return Firecracker(clock, lambda: "" if accelerates else _UNACCELERATED)
    assert name == Qemu.name, f"no VMM is called {name}"
    return Qemu(clock, accelerates=accelerates)


class MicroVMDriver(PilotDriver):
    """The driver for microVMs. Keeps `Driver`, `HostView`, `GuestVolumes` and `SavedMemories`: it is a `PilotDriver`
    with the calls for volumes that only a guest can carry out, and with snapshots that go to other nodes."""

    def __init__(self, microvms: MicroVMTechnology, machines: Path, clock: Clock) -> None:
        super().__init__(microvms, machines, clock)
        self._microvms = microvms
        self._counting: set[MachineId] = set()  # one at a time may have a way that is kept

    # --- volumes

    async def grow_volume(self, machine_id: MachineId, name: str, size_bytes: int) -> None:
        volume = self._volume(machine_id, name)
        async with self._asked(machine_id, _GROW_TIMEOUT_S, kept=True) as pilot:
            await self._microvms.vmm.enlarge(self._files.run(machine_id), name, size_bytes)
            await requests.grow(pilot, volume.target)

    @asynccontextmanager
    async def freeze_volume(self, machine_id: MachineId, name: str, timeout_s: float) -> AsyncIterator[None]:
        volume = self._volume(machine_id, name)
        async with self._link.open(machine_id, kept=True) as pilot, requests.freeze(pilot, volume.target, timeout_s):
            yield

    async def volume_usage(self, machine_id: MachineId, name: str) -> VolumeUsage:
        volume = self._volume(machine_id, name)
        kept = machine_id not in self._counting  # clients ask, too, as often as they like
        self._counting.add(machine_id)
        try:
            async with self._asked(machine_id, ANSWER_TIMEOUT_S, kept=kept) as pilot:
                return await requests.usage(pilot, volume.target)
        finally:
            if kept:
                self._counting.discard(machine_id)

    async def trim_volume(self, machine_id: MachineId, name: str, start: int, count: int) -> None:
        target = self._volume(machine_id, name).target if name else "/"
        async with self._asked(machine_id, _TRIM_TIMEOUT_S, kept=True) as pilot:
            await requests.trim(pilot, target, start, count)

    # --- memories

    async def resumes(self) -> SavedBy:
        vmm = self._microvms.vmm
        how = "with KVM" if vmm.accelerates else "emulating"
        return SavedBy(vmm=f"{await vmm.version()}, {how}", cpu_model=await in_thread(Pool.HOST, cpu_model))

    async def memory_files(self, machine_id: MachineId) -> Mapping[str, int]:
        run = self._files.run(machine_id)
        if not run.saved():
            return {}
        await self._microvms.suspend(run)  # what is left of its VMM ends
        return await in_thread(Pool.HOST, microvm_suspension.moved_files, run)

    def memory_place(self, machine_id: MachineId, name: str) -> Path:
        return microvm_suspension.moved_place(self._files.run(machine_id), name)

    def came(self, name: str) -> str:
        return microvm_suspension.came_as(name)

    async def make_place(self, machine_id: MachineId) -> None:
        await in_thread(Pool.HOST, microvm_suspension.make_moved_place, self._files.run(machine_id))

    async def take_in(self, spec: InstanceSpec) -> None:
        await in_thread(Pool.HOST, microvm_suspension.take_in, self._files.run(spec.machine_id), spec)

    async def image_digest(self, file: Path) -> str:
        return await in_thread(Pool.HOST, _digest, file)

    def _volume(self, machine_id: MachineId, name: str) -> VolumeDisk:
        for volume in spec_of(self._files.existing(machine_id)).volumes:
            if volume.name == name:
                return volume
        raise NotFound(f"machine {machine_id} has no volume {name}")

    @asynccontextmanager
    async def _asked(self, machine_id: MachineId, within_s: float, *, kept: bool) -> AsyncIterator[Connection]:
        async with self._link.open(machine_id, kept=kept) as pilot:
            with _answered(within_s):
                yield pilot


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, hashlib.blake2b).hexdigest()


@contextmanager
def _answered(within_s: float) -> Iterator[None]:
    try:
        with anyio.fail_after(within_s):
            yield
    except TimeoutError as error:
        raise Unavailable("the machine does not answer") from error
