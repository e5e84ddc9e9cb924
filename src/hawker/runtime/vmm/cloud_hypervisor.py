"""Cloud Hypervisor as a `Vmm`, by its API: first what is said to it, as values, then when."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec

from hawker.clock import Clock
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

SNAPSHOT_FILES = ("config.json", "state.json", "memory-ranges")
"""As it names them."""

_ROOT = "/api/v1"
_CID = 3  # of the guest; each VMM has a vsock of its own
_MIB = 1 << 20
_RANDOM = "/dev/urandom"
_DEVICES = "/sys/bus/pci/devices"


# What is said to Cloud Hypervisor's API, as values: the part of its published document that a machine needs. Pure.
# Names are those of vmm/src/api/openapi/cloud-hypervisor.yaml of Cloud Hypervisor 53.0. A field that is not said
# keeps the default that the document gives it, but for the console: without a word it would be the terminal.


class PayloadConfig(ApiBody, frozen=True, kw_only=True):
    kernel: str
    initramfs: str
    cmdline: str


class CpusConfig(ApiBody, frozen=True, kw_only=True):
    boot_vcpus: int
    max_vcpus: int
    nested: bool


class MemoryConfig(ApiBody, frozen=True, kw_only=True):
    size: int


class DiskConfig(ApiBody, frozen=True, kw_only=True):
    """The image type is said: what the guest writes must never decide how its disk is read."""

    id: str
    serial: str
    path: str
    readonly: bool
    image_type: str
    rate_limiter_config: RateLimiter | None = None


class NetConfig(ApiBody, frozen=True, kw_only=True):
    """A network interface, without an MTU: Cloud Hypervisor would set it on the tap, and has no right to. The guest's
    pilot sets it."""

    id: str
    tap: str
    mac: str


class VsockConfig(ApiBody, frozen=True, kw_only=True):
    cid: int
    socket: str


class RngConfig(ApiBody, frozen=True, kw_only=True):
    src: str


class BalloonConfig(ApiBody, frozen=True, kw_only=True):
    size: int
    free_page_reporting: bool


class ConsoleConfig(ApiBody, frozen=True, kw_only=True):
    mode: str


class DeviceConfig(ApiBody, frozen=True, kw_only=True):
    id: str
    path: str


class VmConfig(ApiBody, frozen=True, kw_only=True):
    payload: PayloadConfig
    cpus: CpusConfig
    memory: MemoryConfig
    disks: tuple[DiskConfig, ...]
    rng: RngConfig
    balloon: BalloonConfig
    serial: ConsoleConfig
    console: ConsoleConfig
    vsock: VsockConfig
    net: tuple[NetConfig, ...] = ()
    devices: tuple[DeviceConfig, ...] = ()


class VmResize(ApiBody, frozen=True, kw_only=True):
    desired_balloon: int


class VmResizeDisk(ApiBody, frozen=True, kw_only=True):
    id: str
    desired_size: int


class VmSnapshotConfig(ApiBody, frozen=True, kw_only=True):
    destination_url: str


class RestoreConfig(ApiBody, frozen=True, kw_only=True):
    source_url: str


PING = ApiRequest("GET", f"{_ROOT}/vmm.ping")
INFO = ApiRequest("GET", f"{_ROOT}/vm.info")
BOOT = ApiRequest("PUT", f"{_ROOT}/vm.boot")
PAUSE = ApiRequest("PUT", f"{_ROOT}/vm.pause")
RESUME = ApiRequest("PUT", f"{_ROOT}/vm.resume")
SHUTDOWN = ApiRequest("PUT", f"{_ROOT}/vmm.shutdown")


def boot(vm: Vm, vsock: str) -> Iterator[ApiRequest]:
    """Everything from no virtual machine to one that runs."""
    yield create(vm, vsock)
    yield BOOT


def create(vm: Vm, vsock: str) -> ApiRequest:
    config = VmConfig(
        payload=PayloadConfig(kernel=vm.kernel, initramfs=vm.initramfs, cmdline=vm.command_line),
        cpus=CpusConfig(boot_vcpus=vm.cpus, max_vcpus=vm.cpus, nested=False),
        memory=MemoryConfig(size=vm.max_memory_mib * _MIB),
        disks=tuple(map(_disk, vm.drives)),
        rng=RngConfig(src=_RANDOM),
        balloon=BalloonConfig(size=(vm.max_memory_mib - vm.memory_mib) * _MIB, free_page_reporting=True),
        serial=ConsoleConfig(mode="Tty"),
        console=ConsoleConfig(mode="Off"),
        vsock=VsockConfig(cid=_CID, socket=vsock),
        net=() if vm.link is None else (NetConfig(id="link", tap=vm.link.tap, mac=vm.link.mac),),
        devices=tuple(_device(place, address) for place, address in enumerate(vm.gpus)),
    )
    return ApiRequest("PUT", f"{_ROOT}/vm.create", config)


def snapshot(directory: str) -> ApiRequest:
    return ApiRequest("PUT", f"{_ROOT}/vm.snapshot", VmSnapshotConfig(destination_url=f"file://{directory}"))


def restore(directory: str) -> ApiRequest:
    return ApiRequest("PUT", f"{_ROOT}/vm.restore", RestoreConfig(source_url=f"file://{directory}"))


def inflate(amount_mib: int) -> ApiRequest:
    return ApiRequest("PUT", f"{_ROOT}/vm.resize", VmResize(desired_balloon=amount_mib * _MIB))


def resize_disk(drive: str, size_bytes: int) -> ApiRequest:
    return ApiRequest("PUT", f"{_ROOT}/vm.resize-disk", VmResizeDisk(id=drive, desired_size=size_bytes))


def _disk(drive: VmDrive) -> DiskConfig:
    return DiskConfig(
        id=drive.name,
        serial=drive.name,
        path=drive.path,
        readonly=drive.read_only,
        image_type="Raw",
        rate_limiter_config=rate_limiter(drive.limits),
    )


def _device(place: int, address: str) -> DeviceConfig:
    return DeviceConfig(id=f"gpu{place}", path=f"{_DEVICES}/{address}/")


CLOUD_HYPERVISOR = VmmProgram(
    command="cloud-hypervisor",
    title="Cloud Hypervisor",
    source="docs/cloud-hypervisor.md",
    least=(51, 0),
    known=(53, 0),
)
_RUNNING = "Running"


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
    first=PING,
    boot=boot,
    pause=PAUSE,
    resume=RESUME,
    save=snapshot,
    load=restore,
    snapshot_files=SNAPSHOT_FILES,
    complaint=_complaint,
)


class CloudHypervisor(ApiVmm):
    """Keeps `Vmm`."""

    name = "cloud-hypervisor"
    power_off = "poweroff"
    gpus = True
    overhead_mib = 96
    timer_khz: int | None = None

    def __init__(self, clock: Clock, lack_of_kvm: Callable[[], str], program: VmmProgram = CLOUD_HYPERVISOR) -> None:
        super().__init__(clock, lack_of_kvm, program, _CALLS)

    def console(self) -> str:
        return f"console=ttyS0 hawker.vsock={PORT}"

    def argv(self, vm: Vm, restored: Restored | None) -> tuple[str, ...]:
        return (self._program.find(), "--api-socket", f"path={vm.directory}/{SOCKET}", "--seccomp", "true")

    async def proceed(self, run: RunDir) -> None:
        """It refuses to resume what runs."""
        spoken = self._api(run)
        if (await spoken.ask(INFO, _Info)).state != _RUNNING:
            await spoken.send(RESUME)

    async def end(self, run: RunDir) -> None:
        await self._api(run).try_send(SHUTDOWN)

    async def inflate(self, run: RunDir, guest_mib: int) -> None:
        """Returns once the guest has followed; the balloon keeps its new size when this raises."""
        spoken = self._api(run)
        info = await spoken.ask(INFO, _Info)
        whole, before = info.config.memory.size, info.memory_actual_size
        wanted = min(guest_mib * _MIB, whole)
        await spoken.send(inflate((whole - wanted) // _MIB))

        async def actual() -> int:
            return (await spoken.ask(INFO, _Info)).memory_actual_size

        await followed(actual, before, wanted, guest_mib, self._clock)

    async def enlarge(self, run: RunDir, drive: str, size_bytes: int) -> None:
        await self._api(run).send(resize_disk(drive, size_bytes))
