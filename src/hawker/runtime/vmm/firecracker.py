"""Firecracker as a `Vmm`, by its API: first what is said to it, as values, then when."""

from collections.abc import Callable, Iterator

import msgspec

from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.vsock import PORT
from hawker.runtime.vmm.balloon import followed
from hawker.runtime.vmm.contract import Restored, Vm, VmDrive
from hawker.runtime.vmm.vmm_api import (
    SOCKET,
    ApiBody,
    ApiRequest,
    ApiVmm,
    RateLimiter,
    VmmCalls,
    VmmProgram,
    rate_limiter,
)

SNAPSHOT_FILES = _STATE, _MEMORY = "state", "memory"

_CID = 3  # of the guest; each VMM has a vsock of its own
_INTERFACE = "eth0"
_STATISTICS_S = 60  # what is read of the balloon is as it is now; the guest is asked for the rest so often


# What is said to Firecracker's API, as values: the part of its published document that a machine needs. Pure. Names
# are those of src/firecracker/swagger/firecracker.yaml of Firecracker 1.16.1. A field that is not said keeps the
# default that the document gives it.


class BootSource(ApiBody, frozen=True, kw_only=True):
    kernel_image_path: str
    initrd_path: str
    boot_args: str


class MachineConfiguration(ApiBody, frozen=True, kw_only=True):
    vcpu_count: int
    mem_size_mib: int


class DriveBody(ApiBody, frozen=True, kw_only=True):
    """ "Writeback": what the guest has flushed is on the host's disk, where the default loses it."""

    drive_id: str
    path_on_host: str
    is_root_device: bool
    is_read_only: bool
    cache_type: str
    rate_limiter: RateLimiter | None = None


class NetworkInterface(ApiBody, frozen=True, kw_only=True):
    iface_id: str
    host_dev_name: str
    guest_mac: str


class Vsock(ApiBody, frozen=True, kw_only=True):
    guest_cid: int
    uds_path: str


class Balloon(ApiBody, frozen=True, kw_only=True):
    amount_mib: int
    deflate_on_oom: bool
    stats_polling_interval_s: int
    free_page_reporting: bool


class EntropyDevice(ApiBody, frozen=True, kw_only=True):
    """The guest's source of randomness, without a limit."""


class InstanceActionInfo(ApiBody, frozen=True, kw_only=True):
    action_type: str


class VmState(ApiBody, frozen=True, kw_only=True):
    state: str


class SnapshotCreateParams(ApiBody, frozen=True, kw_only=True):
    snapshot_path: str
    mem_file_path: str


class MemoryBackend(ApiBody, frozen=True, kw_only=True):
    backend_type: str
    backend_path: str


class SnapshotLoadParams(ApiBody, frozen=True, kw_only=True):
    snapshot_path: str
    mem_backend: MemoryBackend


class BalloonUpdate(ApiBody, frozen=True, kw_only=True):
    amount_mib: int


class PartialDrive(ApiBody, frozen=True, kw_only=True):
    drive_id: str
    path_on_host: str


VERSION = ApiRequest("GET", "/version")
STATISTICS = ApiRequest("GET", "/balloon/statistics")
MACHINE = ApiRequest("GET", "/machine-config")
CONFIGURATION = ApiRequest("GET", "/vm/config")
START = ApiRequest("PUT", "/actions", InstanceActionInfo(action_type="InstanceStart"))
PAUSE = ApiRequest("PATCH", "/vm", VmState(state="Paused"))
RESUME = ApiRequest("PATCH", "/vm", VmState(state="Resumed"))


def boot(vm: Vm, vsock: str) -> Iterator[ApiRequest]:
    """Everything up to the start, in an order that the document allows: drives are vda, vdb, ... as they come."""
    source = BootSource(kernel_image_path=vm.kernel, initrd_path=vm.initramfs, boot_args=vm.command_line)
    yield ApiRequest("PUT", "/boot-source", source)
    yield ApiRequest("PUT", "/machine-config", MachineConfiguration(vcpu_count=vm.cpus, mem_size_mib=vm.max_memory_mib))
    for drive in vm.drives:
        yield _drive(drive)
    if vm.link is not None:
        interface = NetworkInterface(iface_id=_INTERFACE, host_dev_name=vm.link.tap, guest_mac=vm.link.mac)
        yield ApiRequest("PUT", f"/network-interfaces/{_INTERFACE}", interface)
    yield ApiRequest("PUT", "/vsock", Vsock(guest_cid=_CID, uds_path=vsock))
    balloon = Balloon(
        amount_mib=vm.max_memory_mib - vm.memory_mib,
        deflate_on_oom=False,
        stats_polling_interval_s=_STATISTICS_S,
        free_page_reporting=True,
    )
    yield ApiRequest("PUT", "/balloon", balloon)
    yield ApiRequest("PUT", "/entropy", EntropyDevice())
    yield START


def create_snapshot(directory: str) -> ApiRequest:
    files = SnapshotCreateParams(snapshot_path=f"{directory}/{_STATE}", mem_file_path=f"{directory}/{_MEMORY}")
    return ApiRequest("PUT", "/snapshot/create", files)


def load_snapshot(directory: str) -> ApiRequest:
    memory = MemoryBackend(backend_type="File", backend_path=f"{directory}/{_MEMORY}")
    return ApiRequest(
        "PUT", "/snapshot/load", SnapshotLoadParams(snapshot_path=f"{directory}/{_STATE}", mem_backend=memory)
    )


def inflate(amount_mib: int) -> ApiRequest:
    return ApiRequest("PATCH", "/balloon", BalloonUpdate(amount_mib=amount_mib))


def look_again(drive: str, path: str) -> ApiRequest:
    """Have it see that the file of a drive has another size."""
    drive_id = id_of(drive)
    return ApiRequest("PATCH", f"/drives/{drive_id}", PartialDrive(drive_id=drive_id, path_on_host=path))


def id_of(drive: str) -> str:
    """Ids are of letters, digits and underscores; a drive's name has none of the last."""
    return drive.replace("-", "_")


def _drive(drive: VmDrive) -> ApiRequest:
    body = DriveBody(
        drive_id=id_of(drive.name),
        path_on_host=drive.path,
        is_root_device=False,
        is_read_only=drive.read_only,
        cache_type="Writeback",
        rate_limiter=rate_limiter(drive.limits),
    )
    return ApiRequest("PUT", f"/drives/{body.drive_id}", body)


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
    first=VERSION,
    boot=boot,
    pause=PAUSE,
    resume=RESUME,
    save=create_snapshot,
    load=load_snapshot,
    snapshot_files=SNAPSHOT_FILES,
    complaint=_complaint,
)


class Firecracker(ApiVmm):
    """Keeps `Vmm`. A Firecracker that does not take a snapshot ends."""

    name = "firecracker"
    power_off = "reboot"
    gpus = False
    overhead_mib = 32
    timer_khz: int | None = None

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
        whole = (await spoken.ask(MACHINE, _Machine)).mem_size_mib
        wanted = max(0, whole - guest_mib)
        before = (await spoken.ask(STATISTICS, _Statistics)).actual_mib
        await spoken.send(inflate(wanted))

        async def actual() -> int:
            return (await spoken.ask(STATISTICS, _Statistics)).actual_mib

        await followed(actual, before, wanted, guest_mib, self._clock)

    async def enlarge(self, run: RunDir, drive: str, size_bytes: int) -> None:
        """It looks at the size of the file itself, once told to open it again. Raises `Unavailable` for no such
        drive."""
        spoken, drive_id = self._api(run), id_of(drive)
        found = (await spoken.ask(CONFIGURATION, _Configuration)).drives
        for each in found:
            if each.drive_id == drive_id and each.path_on_host is not None:
                await spoken.send(look_again(drive, each.path_on_host))
                return
        raise Unavailable(f"Firecracker knows no drive {drive}")
