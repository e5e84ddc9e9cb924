"""PCI devices that are handed to virtual machines: taken from the host's drivers, bound to `vfio-pci`, reset before
each new owner (kernel: Documentation/driver-api/vfio.rst, Documentation/ABI/testing/sysfs-bus-pci).

A device that was taken is not given back to the host's drivers by itself: a hostile guest may have left anything in it,
and the next machine needs it again. All state is the kernel's; each call is idempotent and may follow a crash anywhere.
"""

import subprocess
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import anyio

from hawker.errors import Unavailable
from hawker.fair.threads import Pool, in_thread

_SYSFS = Path("/sys")
_DRIVER = "vfio-pci"
_LOAD = ("modprobe", _DRIVER)
_BRIDGE_CLASS = "0x06"
_LOAD_TIMEOUT_S = 30.0


class VfioRefusal(StrEnum):
    """The reason why a device cannot be handed out."""

    GONE = "gone"
    NO_IOMMU = "no IOMMU"
    NO_VFIO = "no vfio-pci"
    SHARED = "its group is shared"
    ELSEWHERE = "bound elsewhere"
    NO_RESET = "no reset"


class DeviceRefused(Unavailable):
    """A device cannot be given to a machine. The message says what to do; a retry may succeed once that is done."""

    def __init__(self, refusal: VfioRefusal, address: str, what: str) -> None:
        super().__init__(f"device {address} cannot be given to a machine: {what}")
        self.refusal = refusal


class PciDevices:
    """The PCI devices that the node hands out. Keeps `worker.lifecycle.host_adapters.Devices`. `known` are the
    addresses of all these devices: no two machines may have one group of the IOMMU between them."""

    def __init__(
        self,
        known: Collection[str],
        sysfs: Path = _SYSFS,
        *,
        load: Sequence[str] = _LOAD,
        write: Callable[[Path, str], object] = Path.write_text,
    ) -> None:
        self._known = frozenset(known)
        self._bus = sysfs / "bus/pci"
        self._load = load
        self._write = write
        self._change = anyio.Lock()

    async def take(self, addresses: Sequence[str]) -> None:
        """Make these devices ready for one machine, as its own and fresh. Raises `DeviceRefused`. Only while nobody has
        them open: a reset would end the work on them."""
        async with self._change:
            await in_thread(Pool.HOST, self._take, addresses)

    def _take(self, addresses: Sequence[str]) -> None:
        for address in addresses:
            self._check(address, addresses)
        self._need_driver(addresses)
        for address in addresses:
            try:
                for each in self._card(address):
                    self._bind(each)
            except OSError as error:
                what = f"the kernel does not let {_DRIVER} have it ({error.strerror}): is something using it?"
                raise DeviceRefused(VfioRefusal.ELSEWHERE, address, what) from error
            self._reset(address)

    def _check(self, address: str, together: Collection[str]) -> None:
        if not self._device(address).is_dir():
            raise DeviceRefused(VfioRefusal.GONE, address, "it is not on this host's PCI bus: look at gpu_devices")
        if not (self._device(address) / "iommu_group").exists():
            what = "the IOMMU is off: turn it on in the firmware and boot with intel_iommu=on or amd_iommu=on"
            raise DeviceRefused(VfioRefusal.NO_IOMMU, address, what)
        if not (self._device(address) / "reset").exists():
            what = "it has no reset of its own, so what one machine left in it the next would find"
            raise DeviceRefused(VfioRefusal.NO_RESET, address, what)
        for other in self._group(address):
            if other in self._known and other not in together:
                what = f"{other} is in one IOMMU group with it, and not for the same machine: put them into other slots"
                raise DeviceRefused(VfioRefusal.SHARED, address, what)
            driver = self._driver_of(other)
            if driver not in (None, _DRIVER) and not self._is_bridge(other) and not _one_card(other, address):
                what = f"{other}, which {driver} uses, is in one IOMMU group with it: put one into another slot"
                raise DeviceRefused(VfioRefusal.SHARED, address, what)

    def _need_driver(self, addresses: Sequence[str]) -> None:
        driver = self._bus / "drivers" / _DRIVER
        if addresses and not driver.is_dir():
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(self._load, check=False, capture_output=True, timeout=_LOAD_TIMEOUT_S)
            if not driver.is_dir():
                raise DeviceRefused(
                    VfioRefusal.NO_VFIO, addresses[0], f"this host's kernel has no {_DRIVER}: modprobe it"
                )

    def _bind(self, address: str) -> None:
        """First the wish, then away from whatever has it, then the search for a driver: cut short anywhere, the same
        again completes it."""
        override, driver = self._device(address) / "driver_override", self._driver_of(address)
        if driver == _DRIVER:
            return
        wish = override.read_text().strip()
        if wish not in ("", "(null)", _DRIVER):
            what = f"its driver_override is {wish}, so somebody else means to have it"
            raise DeviceRefused(VfioRefusal.ELSEWHERE, address, what)
        self._write(override, _DRIVER)
        if driver is not None:
            self._write(self._device(address) / "driver/unbind", address)
        self._write(self._bus / "drivers_probe", address)
        driver = self._driver_of(address)
        if driver != _DRIVER:
            what = f"{_DRIVER} did not take it; {driver or 'no driver'} has it"
            raise DeviceRefused(VfioRefusal.ELSEWHERE, address, what)

    def _reset(self, address: str) -> None:
        try:
            self._write(self._device(address) / "reset", "1")
        except OSError as error:
            what = f"its reset failed ({error.strerror}): the host may need a cold start"
            raise DeviceRefused(VfioRefusal.NO_RESET, address, what) from error

    def _card(self, address: str) -> Iterator[str]:
        """The device, and what else of its card is in its group, such as its sound: a machine has cards whole."""
        yield address
        yield from (
            other
            for other in self._group(address)
            if other != address and _one_card(other, address) and not self._is_bridge(other)
        )

    def _group(self, address: str) -> list[str]:
        return sorted(member.name for member in (self._device(address) / "iommu_group/devices").iterdir())

    def _device(self, address: str) -> Path:
        return self._bus / "devices" / address

    def _driver_of(self, address: str) -> str | None:
        link = self._device(address) / "driver"
        return link.resolve().name if link.exists() else None

    def _is_bridge(self, address: str) -> bool:
        """Its driver moves frames between buses and touches no memory by itself."""
        return (self._device(address) / "class").read_text().startswith(_BRIDGE_CLASS)


def vfio_nodes(addresses: Sequence[str], sysfs: Path = _SYSFS) -> tuple[str, ...]:
    """The device files that a VMM opens for devices that were taken: the container's, and each group's. Raises
    `DeviceRefused`."""
    groups: dict[str, None] = {}
    for address in addresses:
        try:
            groups[(described(address, sysfs) / "iommu_group").readlink().name] = None
        except OSError as error:
            raise DeviceRefused(VfioRefusal.GONE, address, "it is not on this host's PCI bus any more") from error
    return ("/dev/vfio/vfio", *(f"/dev/vfio/{group}" for group in groups)) if groups else ()


def described(address: str, sysfs: Path = _SYSFS) -> Path:
    """The directory that describes a device; a VMM is told it to find the device's group."""
    return sysfs / "bus/pci/devices" / address


def _one_card(one: str, other: str) -> bool:
    """Functions of one device differ behind the dot only."""
    return one.rpartition(".")[0] == other.rpartition(".")[0]
