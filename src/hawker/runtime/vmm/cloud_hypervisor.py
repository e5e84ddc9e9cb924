"""Cloud Hypervisor as a `Vmm`, by its API. What is said to it is in `cloud_hypervisor_api`; here is when."""

from collections.abc import Callable
from contextlib import suppress

import anyio
import anyio.to_thread
import msgspec

from hawker.clock import Clock
from hawker.errors import SnapshotLost, Unavailable
from hawker.runtime.pilot.channel import PilotChannel
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.vsock import PORT, VsockChannel
from hawker.runtime.vmm import cloud_hypervisor_api as api
from hawker.runtime.vmm.balloon import followed
from hawker.runtime.vmm.contract import Restored, Vm
from hawker.runtime.vmm.vmm_api import VmmApi, VmmProgram, discard, patience_s

SOCKET = "api.sock"
"""In the VMM's directory."""

CLOUD_HYPERVISOR = VmmProgram(
    command="cloud-hypervisor",
    title="Cloud Hypervisor",
    source="docs/cloud-hypervisor.md",
    least=(51, 0),
    known=(53, 0),
)
_RUNNING = "Running"
_LET_GO_S = 10.0
_MIB = 1 << 20


class _Memory(msgspec.Struct, frozen=True, kw_only=True):
    size: int


class _Config(msgspec.Struct, frozen=True, kw_only=True):
    memory: _Memory


class _Info(msgspec.Struct, frozen=True, kw_only=True):
    state: str
    config: _Config
    memory_actual_size: int


class CloudHypervisor:
    """Keeps `Vmm`. `lack_of_kvm` says why KVM cannot be used, "" when it can."""

    name = "cloud-hypervisor"
    accelerates = True
    kernel_format = "vmlinux"
    power_off = "poweroff"
    snapshots = True
    gpus = True
    overhead_mib = 96

    def __init__(self, clock: Clock, lack_of_kvm: Callable[[], str], program: VmmProgram = CLOUD_HYPERVISOR) -> None:
        self._clock = clock
        self._lack_of_kvm = lack_of_kvm
        self._program = program
        self.program = program.command

    def channel(self) -> PilotChannel:
        return VsockChannel()

    def console(self) -> str:
        return f"console=ttyS0 hawker.vsock={PORT}"

    async def check(self) -> None:
        await self._program.check(self._lack_of_kvm)

    async def version(self) -> str:
        return await self._program.version()

    def argv(self, vm: Vm, restored: Restored | None) -> tuple[str, ...]:
        return (self._program.find(), "--api-socket", f"path={vm.directory}/{SOCKET}", "--seccomp", "true")

    async def boot(self, vm: Vm, run: RunDir, restored: Restored | None) -> None:
        spoken = _api(run)
        await spoken.appeared(api.PING, run.alive, self._clock)
        if restored is not None:
            await _load(spoken, vm, restored)
            return
        await spoken.send(api.create(vm, f"{vm.directory}/{run.vsock.name}"))
        await spoken.send(api.BOOT)

    async def save(self, vm: Vm, run: RunDir, directory: str) -> None:
        spoken = _api(run)
        await spoken.send(api.PAUSE)
        try:
            await spoken.send(api.snapshot(directory), timeout_s=patience_s(vm))
        except BaseException:
            with anyio.move_on_after(_LET_GO_S, shield=True):
                await anyio.to_thread.run_sync(discard, run.vmm, directory, api.SNAPSHOT_FILES)
                await spoken.try_send(api.RESUME)
            raise

    async def proceed(self, run: RunDir) -> None:
        """It refuses to resume what runs."""
        spoken = _api(run)
        if (await spoken.ask(api.INFO, _Info)).state != _RUNNING:
            await spoken.send(api.RESUME)

    async def end(self, run: RunDir) -> None:
        await _api(run).try_send(api.SHUTDOWN)

    async def inflate(self, run: RunDir, guest_mib: int) -> None:
        """Returns once the guest has followed; the balloon keeps its new size when this raises."""
        spoken = _api(run)
        info = await spoken.ask(api.INFO, _Info)
        whole, before = info.config.memory.size, info.memory_actual_size
        wanted = min(guest_mib * _MIB, whole)
        await spoken.send(api.inflate((whole - wanted) // _MIB))

        async def actual() -> int:
            return (await spoken.ask(api.INFO, _Info)).memory_actual_size

        await followed(actual, before, wanted, guest_mib, self._clock)

    async def enlarge(self, run: RunDir, drive: str, size_bytes: int) -> None:
        await _api(run).send(api.resize_disk(drive, size_bytes))


async def _load(spoken: VmmApi, vm: Vm, restored: Restored) -> None:
    try:
        await spoken.send(api.restore(restored.directory), timeout_s=patience_s(vm))
    except Unavailable as error:
        raise SnapshotLost(f"the snapshot cannot be taken up: {error}") from error


def _api(run: RunDir) -> VmmApi:
    return VmmApi("Cloud Hypervisor", run.vmm / SOCKET, _complaint)


def _complaint(body: bytes) -> str:
    """What went wrong, from the outside to its cause; older versions say it in plain text."""
    with suppress(msgspec.DecodeError, RecursionError):
        return ": ".join(msgspec.json.decode(body, type=tuple[str, ...]))
    return body.decode("utf-8", "replace")
