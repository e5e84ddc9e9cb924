"""Firecracker as a `Vmm`, by its API. What is said to it is in `firecracker_api`; here is when."""

from collections.abc import Callable

import msgspec

from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.vsock import PORT
from hawker.runtime.vmm import firecracker_api as api
from hawker.runtime.vmm.balloon import followed
from hawker.runtime.vmm.contract import Restored, Vm
from hawker.runtime.vmm.vmm_api import SOCKET, ApiVmm, VmmCalls, VmmProgram

FIRECRACKER = VmmProgram(
    command="firecracker",
    title="Firecracker",
    source="docs/firecracker.md",
    least=(1, 14),
    known=(1, 16),
)


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


def _complaint(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Fault).fault_message
    except (msgspec.DecodeError, RecursionError):
        return body.decode("utf-8", "replace")


_CALLS = VmmCalls(
    first=api.VERSION,
    boot=api.boot,
    pause=api.PAUSE,
    resume=api.RESUME,
    save=api.create_snapshot,
    load=api.load_snapshot,
    snapshot_files=api.SNAPSHOT_FILES,
    complaint=_complaint,
)


class Firecracker(ApiVmm):
    """Keeps `Vmm`. A Firecracker that does not take a snapshot ends."""

    name = "firecracker"
    power_off = "reboot"
    gpus = False
    overhead_mib = 32

    def __init__(self, clock: Clock, lack_of_kvm: Callable[[], str], program: VmmProgram = FIRECRACKER) -> None:
        super().__init__(clock, lack_of_kvm, program, _CALLS)

    def console(self) -> str:
        """A reset by its keyboard controller is what ends it. There is no mouse to look for."""
        return f"console=ttyS0 hawker.vsock={PORT} reboot=k i8042.noaux i8042.nomux i8042.dumbkbd"

    def argv(self, vm: Vm, restored: Restored | None) -> tuple[str, ...]:
        """It filters its own system calls by default."""
        return (self._program.find(), "--api-sock", f"{vm.directory}/{SOCKET}", "--level", "Error")

    async def end(self, run: RunDir) -> None:
        """Its API has no word for it: whoever called has it killed, which costs nothing that a flush has not saved."""

    async def inflate(self, run: RunDir, guest_mib: int) -> None:
        """Returns once the guest has followed; the balloon keeps its new size when this raises."""
        spoken = self._api(run)
        whole = (await spoken.ask(api.MACHINE, _Machine)).mem_size_mib
        wanted = max(0, whole - guest_mib)
        before = (await spoken.ask(api.STATISTICS, _Statistics)).actual_mib
        await spoken.send(api.inflate(wanted))

        async def actual() -> int:
            return (await spoken.ask(api.STATISTICS, _Statistics)).actual_mib

        await followed(actual, before, wanted, guest_mib, self._clock)

    async def enlarge(self, run: RunDir, drive: str, size_bytes: int) -> None:
        """It looks at the size of the file itself, once told to open it again. Raises `Unavailable` for no such
        drive."""
        spoken, drive_id = self._api(run), api.id_of(drive)
        found = (await spoken.ask(api.CONFIGURATION, _Configuration)).drives
        for each in found:
            if each.drive_id == drive_id and each.path_on_host is not None:
                await spoken.send(api.look_again(drive, each.path_on_host))
                return
        raise Unavailable(f"Firecracker knows no drive {drive}")
