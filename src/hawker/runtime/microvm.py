"""The drivers for microVMs: a machine is a virtual machine whose kernel starts the pilot as its process 1.

`PilotDriver`, with what only a guest can do for its volumes, and an eye for guests that a daemon left held still.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio

from hawker import guest
from hawker.clock import Clock
from hawker.errors import NotFound, Unavailable
from hawker.host.cgroup import Cgroups, find_hierarchies
from hawker.host.mount import mounts
from hawker.ids import MachineId, NodeId
from hawker.runtime.crun import Crun
from hawker.runtime.driver import Inspection
from hawker.runtime.guest_volumes import VolumeUsage
from hawker.runtime.kernel.guest_kernel import GuestKernel
from hawker.runtime.microvms import MicroVMs
from hawker.runtime.pilot import guest_requests
from hawker.runtime.pilot.connection import Connection
from hawker.runtime.pilot.driver import PilotDriver
from hawker.runtime.pilot.reach import ANSWER_TIMEOUT_S
from hawker.runtime.pilot.runs import spec_of
from hawker.runtime.spec import VolumeDisk
from hawker.runtime.vmm.cloud_hypervisor import CloudHypervisor
from hawker.runtime.vmm.contract import Vmm
from hawker.runtime.vmm.firecracker import Firecracker
from hawker.runtime.vmm.jail import CrunJail
from hawker.runtime.vmm.jailer import FirecrackerJailer
from hawker.runtime.vmm.qemu import Qemu

_GROW_TIMEOUT_S = 60.0
_UNACCELERATED = "no kernel came up with it here"


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
    """`name` is the VMM's; `kernels` is `Place.kernels`, `kernel` the setting; `accelerates`: KVM was seen to boot."""
    cgroups = Cgroups(node_id, find_hierarchies(mounts()))
    own_jailer = name == Firecracker.name
    jail = FirecrackerJailer(cgroups) if own_jailer else CrunJail(Crun(crun_state, cgroups), cgroups)
    boots = GuestKernel(kernels, kernel, guest.pilot_path(), clock)
    technology = MicroVMs(_vmm(name, clock, accelerates), jail, boots, cgroups, clock, overhead_mib)
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
    """Keeps `Driver` and `GuestVolumes`."""

    def __init__(self, microvms: MicroVMs, machines: Path, clock: Clock) -> None:
        super().__init__(microvms, machines, clock)
        self._microvms = microvms

    async def recover(self, machine_id: MachineId) -> Inspection:
        with suppress(Unavailable):
            await self._microvms.suspension.let_go(self._run(machine_id))
        return await super().recover(machine_id)

    async def list(self) -> list[MachineId]:
        return sorted({*await super().list(), *self._microvms.list()})

    # --- volumes

    async def grow_volume(self, machine_id: MachineId, name: str, size_bytes: int) -> None:
        volume = self._volume(machine_id, name)
        async with self._asked(machine_id, _GROW_TIMEOUT_S) as pilot:
            await self._microvms.vmm.enlarge(self._run(machine_id), name, size_bytes)
            await guest_requests.grow(pilot, volume.target)

    @asynccontextmanager
    async def freeze_volume(self, machine_id: MachineId, name: str, timeout_s: float) -> AsyncIterator[None]:
        volume = self._volume(machine_id, name)
        async with self._pilot(machine_id) as pilot, guest_requests.freeze(pilot, volume.target, timeout_s):
            yield

    async def volume_usage(self, machine_id: MachineId, name: str) -> VolumeUsage:
        volume = self._volume(machine_id, name)
        async with self._asked(machine_id, ANSWER_TIMEOUT_S) as pilot:
            return await guest_requests.usage(pilot, volume.target)

    def _volume(self, machine_id: MachineId, name: str) -> VolumeDisk:
        for volume in spec_of(self._existing(machine_id)).volumes:
            if volume.name == name:
                return volume
        raise NotFound(f"machine {machine_id} has no volume {name}")

    @asynccontextmanager
    async def _asked(self, machine_id: MachineId, within_s: float) -> AsyncIterator[Connection]:
        async with self._pilot(machine_id) as pilot:
            with _answered(within_s):
                yield pilot


@contextmanager
def _answered(within_s: float) -> Iterator[None]:
    try:
        with anyio.fail_after(within_s):
            yield
    except TimeoutError as error:
        raise Unavailable("the machine's pilot does not answer") from error
