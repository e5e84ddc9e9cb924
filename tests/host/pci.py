"""A made-up PCI bus: a tree of files as sysfs has them, and a kernel that does what is written to them."""

import errno
import os
import shutil
from pathlib import Path


class Killed(BaseException):
    """The writer is no more."""


class Bus:
    """`log` has what was written, as (name of the file, value); `fails` names files that refuse, with an error number;
    with `dies_at`, the writer is killed before its write of that number."""

    def __init__(self, sysfs: Path, *, vfio: bool = True) -> None:
        self.sysfs = sysfs
        self.pci = sysfs / "bus/pci"
        self.log: list[tuple[str, str]] = []
        self.fails: dict[str, int] = {}
        self.refuses: set[str] = set()  # drivers that do not take what they are offered
        self.dies_at: int | None = None
        (self.pci / "devices").mkdir(parents=True)
        (self.pci / "drivers").mkdir()
        (self.pci / "drivers_probe").touch()
        if vfio:
            self.add_driver("vfio-pci")

    def add_driver(self, name: str) -> None:
        (self.pci / "drivers" / name).mkdir()
        (self.pci / "drivers" / name / "unbind").touch()

    def add(self, address: str, *, group: int | None, driver: str | None = None, kind: str = "0x030200") -> None:
        """`group` None: no IOMMU."""
        device = self.sysfs / "devices/pci0000:00" / address
        device.mkdir(parents=True)
        (device / "class").write_text(f"{kind}\n")
        (device / "driver_override").write_text("(null)\n")
        (device / "reset").touch()
        (self.pci / "devices" / address).symlink_to(device)
        if group is not None:
            members = self.sysfs / "kernel/iommu_groups" / str(group) / "devices"
            members.mkdir(parents=True, exist_ok=True)
            (members / address).symlink_to(device)
            (device / "iommu_group").symlink_to(members.parent)
        if driver is not None:
            if not (self.pci / "drivers" / driver).is_dir():
                self.add_driver(driver)
            self._bind(address, driver)

    def unplug(self, address: str) -> None:
        (self.pci / "devices" / address).unlink()
        shutil.rmtree(self.sysfs / "devices/pci0000:00" / address)

    def driver_of(self, address: str) -> str | None:
        link = self.pci / "devices" / address / "driver"
        return link.resolve().name if link.is_symlink() else None

    def write(self, file: Path, value: str) -> None:
        if self.dies_at == len(self.log):
            raise Killed
        self.log.append((file.name, value))
        if file.name in self.fails:
            raise OSError(self.fails[file.name], os.strerror(self.fails[file.name]))
        match file.name:
            case "driver_override":
                file.write_text(f"{value}\n")
            case "unbind":
                if self.driver_of(value) != file.resolve().parent.name:
                    raise OSError(errno.ENODEV, "no such device")
                (self.pci / "devices" / value / "driver").unlink()
            case "drivers_probe":
                wanted = (self.pci / "devices" / value / "driver_override").read_text().strip()
                able = (self.pci / "drivers" / wanted).is_dir() and wanted not in self.refuses
                if self.driver_of(value) is None and able:
                    self._bind(value, wanted)
            case "reset":
                assert self.driver_of(file.parent.name) == "vfio-pci", "a device in use was reset under its driver"
            case name:
                raise AssertionError(f"nobody writes to {name}")

    def _bind(self, address: str, driver: str) -> None:
        (self.pci / "devices" / address / "driver").symlink_to(self.pci / "drivers" / driver)
