"""Firecracker as a `Vmm`, by its API. What is said to it is in `firecracker_api`; here is when."""

from collections.abc import Callable

import anyio
import anyio.to_thread
import msgspec

from hawker.clock import Clock
from hawker.errors import SnapshotLost, Unavailable
from hawker.runtime.pilot.channel import PilotChannel
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.vsock import PORT, VsockChannel
from hawker.runtime.vmm import firecracker_api as api
from hawker.runtime.vmm.balloon import followed
from hawker.runtime.vmm.contract import Restored, Vm
from hawker.runtime.vmm.vmm_api import VmmApi, VmmProgram, discard, patience_s

SOCKET = "api.sock"
"""In the VMM's directory."""

FIRECRACKER = VmmProgram(
    command="firecracker",
    title="Firecracker",
    source="docs/firecracker.md",
    least=(1, 14),
    known=(1, 16),
)
_LET_GO_S = 10.0


class _Fault(msgspec.Struct, frozen=True, kw_only=True):
    fault_message: str = ""


class _Statistics(msgspec.Struct, frozen=True, kw_only=True):
    actual_mib: int


class _Machine(msgspec.Struct, frozen=True, kw_only=True):
    mem_size_mib: int


class _DriveIs(msgspec.Struct, frozen=True, kw_only=True):
    drive_id: str
    path_on_host: str | None = None


class _Configuration(msgspec.Struct, frozen=True, kw_only=True):
    drives: tuple[_DriveIs, ...] = ()


class Firecracker:
    """Keeps `Vmm`. `lack_of_kvm` says why KVM cannot be used, "" when it can."""

    name = "firecracker"
    accelerates = True
    kernel_format = "vmlinux"
    power_off = "reboot"
    snapshots = True
    gpus = False
    overhead_mib = 32

    def __init__(self, clock: Clock, lack_of_kvm: Callable[[], str], program: VmmProgram = FIRECRACKER) -> None:
        self._clock = clock
        self._lack_of_kvm = lack_of_kvm
        self._program = program
        self.program = program.command

    def channel(self) -> PilotChannel:
        return VsockChannel()

    def console(self) -> str:
        """A reset by its keyboard controller is what ends it. There is no mouse to look for."""
        return f"console=ttyS0 hawker.vsock={PORT} reboot=k i8042.noaux i8042.nomux i8042.dumbkbd"

    async def check(self) -> None:
        await self._program.check(self._lack_of_kvm)

    async def version(self) -> str:
        return await self._program.version()

    def argv(self, vm: Vm, restored: Restored | None) -> tuple[str, ...]:
        """It filters its own system calls by default."""
        return (self._program.find(), "--api-sock", f"{vm.directory}/{SOCKET}", "--level", "Error")

    async def boot(self, vm: Vm, run: RunDir, restored: Restored | None) -> None:
        """Raises also when a request of those before the start is refused: the VMM is then of no more use."""
        spoken = _api(run)
        await spoken.appeared(api.VERSION, run.alive, self._clock)
        if restored is not None:
            await _load(spoken, vm, restored)
            return
        for request in api.configure(vm, f"{vm.directory}/{run.vsock.name}"):
            await spoken.send(request)
        await spoken.send(api.START)

    async def save(self, vm: Vm, run: RunDir, directory: str) -> None:
        spoken = _api(run)
        await spoken.send(api.PAUSE)
        try:
            await spoken.send(api.create_snapshot(directory), timeout_s=patience_s(vm))
        except BaseException:
            with anyio.move_on_after(_LET_GO_S, shield=True):
                await anyio.to_thread.run_sync(discard, run.vmm, directory, api.SNAPSHOT_FILES)
                await spoken.try_send(api.RESUME)
            raise

    async def proceed(self, run: RunDir) -> None:
        await _api(run).send(api.RESUME)

    async def end(self, run: RunDir) -> None:
        """Its API has no word for it: whoever called has it killed, which costs nothing that a flush has not saved."""

    async def inflate(self, run: RunDir, guest_mib: int) -> None:
        """Returns once the guest has followed; the balloon keeps its new size when this raises."""
        spoken = _api(run)
        whole = (await spoken.ask(api.MACHINE, _Machine)).mem_size_mib
        wanted = max(0, whole - guest_mib)
        before = (await spoken.ask(api.STATISTICS, _Statistics)).actual_mib
        await spoken.send(api.inflate(wanted))

        async def actual() -> int:
            return (await spoken.ask(api.STATISTICS, _Statistics)).actual_mib

        await followed(actual, before, wanted, guest_mib, self._clock)

    async def enlarge(self, run: RunDir, drive: str, size_bytes: int) -> None:
        """It looks at the size of the file itself, once told to open it again."""
        spoken, drive_id = _api(run), api.id_of(drive)
        found = (await spoken.ask(api.CONFIGURATION, _Configuration)).drives
        for each in found:
            if each.drive_id == drive_id and each.path_on_host is not None:
                await spoken.send(api.look_again(drive, each.path_on_host))
                return
        raise Unavailable(f"Firecracker knows no drive {drive}")


async def _load(spoken: VmmApi, vm: Vm, restored: Restored) -> None:
    """A Firecracker that does not take a snapshot ends."""
    try:
        await spoken.send(api.load_snapshot(restored.directory), timeout_s=patience_s(vm))
    except Unavailable as error:
        raise SnapshotLost(f"the snapshot cannot be taken up: {error}") from error


def _api(run: RunDir) -> VmmApi:
    return VmmApi("Firecracker", run.vmm / SOCKET, _complaint)


def _complaint(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Fault).fault_message
    except (msgspec.DecodeError, RecursionError):
        return body.decode("utf-8", "replace")
