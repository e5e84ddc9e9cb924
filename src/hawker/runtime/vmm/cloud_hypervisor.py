"""Cloud Hypervisor as a `Vmm`, by its API. What is said to it is in `cloud_hypervisor_api`; here is when."""

from collections.abc import Callable
from contextlib import suppress

import msgspec

from hawker.clock import Clock
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.vsock import PORT
from hawker.runtime.vmm import cloud_hypervisor_api as api
from hawker.runtime.vmm.balloon import followed
from hawker.runtime.vmm.contract import Restored, Vm
from hawker.runtime.vmm.vmm_api import SOCKET, ApiVmm, VmmCalls, VmmProgram

CLOUD_HYPERVISOR = VmmProgram(
    command="cloud-hypervisor",
    title="Cloud Hypervisor",
    source="docs/cloud-hypervisor.md",
    least=(51, 0),
    known=(53, 0),
)
_RUNNING = "Running"
_MIB = 1 << 20


class _Memory(msgspec.Struct, frozen=True, kw_only=True):
    size: int


class _Config(msgspec.Struct, frozen=True, kw_only=True):
    memory: _Memory


class _Info(msgspec.Struct, frozen=True, kw_only=True):
    state: str
    config: _Config
    memory_actual_size: int


def _complaint(body: bytes) -> str:
    """What went wrong, from the outside to its cause; older versions say it in plain text."""
    with suppress(msgspec.DecodeError, RecursionError):
        return ": ".join(msgspec.json.decode(body, type=tuple[str, ...]))
    return body.decode("utf-8", "replace")


_CALLS = VmmCalls(
    first=api.PING,
    boot=api.boot,
    pause=api.PAUSE,
    resume=api.RESUME,
    save=api.snapshot,
    load=api.restore,
    snapshot_files=api.SNAPSHOT_FILES,
    complaint=_complaint,
)


class CloudHypervisor(ApiVmm):
    """Keeps `Vmm`."""

    name = "cloud-hypervisor"
    power_off = "poweroff"
    gpus = True
    overhead_mib = 96

    def __init__(self, clock: Clock, lack_of_kvm: Callable[[], str], program: VmmProgram = CLOUD_HYPERVISOR) -> None:
        super().__init__(clock, lack_of_kvm, program, _CALLS)

    def console(self) -> str:
        return f"console=ttyS0 hawker.vsock={PORT}"

    def argv(self, vm: Vm, restored: Restored | None) -> tuple[str, ...]:
        return (self._program.find(), "--api-socket", f"path={vm.directory}/{SOCKET}", "--seccomp", "true")

    async def proceed(self, run: RunDir) -> None:
        """It refuses to resume what runs."""
        spoken = self._api(run)
        if (await spoken.ask(api.INFO, _Info)).state != _RUNNING:
            await spoken.send(api.RESUME)

    async def end(self, run: RunDir) -> None:
        await self._api(run).try_send(api.SHUTDOWN)

    async def inflate(self, run: RunDir, guest_mib: int) -> None:
        """Returns once the guest has followed; the balloon keeps its new size when this raises."""
        spoken = self._api(run)
        info = await spoken.ask(api.INFO, _Info)
        whole, before = info.config.memory.size, info.memory_actual_size
        wanted = min(guest_mib * _MIB, whole)
        await spoken.send(api.inflate((whole - wanted) // _MIB))

        async def actual() -> int:
            return (await spoken.ask(api.INFO, _Info)).memory_actual_size

        await followed(actual, before, wanted, guest_mib, self._clock)

    async def enlarge(self, run: RunDir, drive: str, size_bytes: int) -> None:
        await self._api(run).send(api.resize_disk(drive, size_bytes))
