"""What is said to Cloud Hypervisor's API, as values: the part of its published document that a machine needs. Pure.

Names are those of vmm/src/api/openapi/cloud-hypervisor.yaml of Cloud Hypervisor 53.0. A field that is not said keeps
the default that the document gives it, but for the console: without a word it would be the terminal.
"""

import msgspec

from hawker.runtime.spec import DiskLimits
from hawker.runtime.vmm.contract import Vm, VmDrive
from hawker.runtime.vmm.vmm_api import ApiRequest

SNAPSHOT_FILES = ("config.json", "state.json", "memory-ranges")
"""As it names them."""

_ROOT = "/api/v1"
_CID = 3  # of the guest; each VMM has a vsock of its own
_REFILL_MS = 1000  # well above the 100 ms for which a limiter rests
_MIB = 1 << 20
_RANDOM = "/dev/urandom"
_DEVICES = "/sys/bus/pci/devices"


class _Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What has no value is not said."""


class Payload(_Body, frozen=True, kw_only=True):
    kernel: str
    initramfs: str
    cmdline: str


class Cpus(_Body, frozen=True, kw_only=True):
    boot_vcpus: int
    max_vcpus: int
    nested: bool


class Memory(_Body, frozen=True, kw_only=True):
    size: int


class TokenBucket(_Body, frozen=True, kw_only=True):
    size: int
    refill_time: int  # ms


class RateLimiter(_Body, frozen=True, kw_only=True):
    bandwidth: TokenBucket | None = None
    ops: TokenBucket | None = None


class Disk(_Body, frozen=True, kw_only=True):
    """The image type is said: what the guest writes must never decide how its disk is read."""

    id: str
    serial: str
    path: str
    readonly: bool
    image_type: str
    rate_limiter_config: RateLimiter | None = None


class Net(_Body, frozen=True, kw_only=True):
    """Without an MTU: Cloud Hypervisor would set it on the tap, and has no right to. The guest's pilot sets it."""

    id: str
    tap: str
    mac: str


class Vsock(_Body, frozen=True, kw_only=True):
    cid: int
    socket: str


class Rng(_Body, frozen=True, kw_only=True):
    src: str


class Balloon(_Body, frozen=True, kw_only=True):
    size: int
    free_page_reporting: bool


class Console(_Body, frozen=True, kw_only=True):
    mode: str


class Device(_Body, frozen=True, kw_only=True):
    id: str
    path: str


class VmConfig(_Body, frozen=True, kw_only=True):
    payload: Payload
    cpus: Cpus
    memory: Memory
    disks: tuple[Disk, ...]
    rng: Rng
    balloon: Balloon
    serial: Console
    console: Console
    vsock: Vsock
    net: tuple[Net, ...] = ()
    devices: tuple[Device, ...] = ()


class VmResize(_Body, frozen=True, kw_only=True):
    desired_balloon: int


class VmResizeDisk(_Body, frozen=True, kw_only=True):
    id: str
    desired_size: int


class VmSnapshotConfig(_Body, frozen=True, kw_only=True):
    destination_url: str


class RestoreConfig(_Body, frozen=True, kw_only=True):
    source_url: str


PING = ApiRequest("GET", f"{_ROOT}/vmm.ping")
INFO = ApiRequest("GET", f"{_ROOT}/vm.info")
BOOT = ApiRequest("PUT", f"{_ROOT}/vm.boot")
PAUSE = ApiRequest("PUT", f"{_ROOT}/vm.pause")
RESUME = ApiRequest("PUT", f"{_ROOT}/vm.resume")
SHUTDOWN = ApiRequest("PUT", f"{_ROOT}/vmm.shutdown")


def create(vm: Vm, vsock: str) -> ApiRequest:
    config = VmConfig(
        payload=Payload(kernel=vm.kernel, initramfs=vm.initramfs, cmdline=vm.command_line),
        cpus=Cpus(boot_vcpus=vm.cpus, max_vcpus=vm.cpus, nested=False),
        memory=Memory(size=vm.max_memory_mib * _MIB),
        disks=tuple(map(_disk, vm.drives)),
        rng=Rng(src=_RANDOM),
        balloon=Balloon(size=(vm.max_memory_mib - vm.memory_mib) * _MIB, free_page_reporting=True),
        serial=Console(mode="Tty"),
        console=Console(mode="Off"),
        vsock=Vsock(cid=_CID, socket=vsock),
        net=() if vm.link is None else (Net(id="link", tap=vm.link.tap, mac=vm.link.mac),),
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


def _disk(drive: VmDrive) -> Disk:
    return Disk(
        id=drive.name,
        serial=drive.name,
        path=drive.path,
        readonly=drive.read_only,
        image_type="Raw",
        rate_limiter_config=_limiter(drive.limits),
    )


def _device(place: int, address: str) -> Device:
    return Device(id=f"gpu{place}", path=f"{_DEVICES}/{address}/")


def _limiter(limits: DiskLimits) -> RateLimiter | None:
    if limits == DiskLimits():
        return None
    return RateLimiter(bandwidth=_bucket(limits.bytes_per_s), ops=_bucket(limits.operations_per_s))


def _bucket(per_s: int) -> TokenBucket | None:
    return TokenBucket(size=per_s, refill_time=_REFILL_MS) if per_s else None
