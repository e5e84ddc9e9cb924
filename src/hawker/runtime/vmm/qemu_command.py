"""QEMU's command line for one microVM. Pure.

The machine type is `microvm` with ACPI, by which a distribution's kernel finds the devices. What the guest writes is in
the host's page cache before it is told so, and a flush is an fsync: an end of QEMU loses nothing that was written.
Options and properties: QEMU's manual, "microvm virtual platform", and the output of `-device NAME,help`.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from hawker.runtime.pilot.guest_spec import JOURNAL
from hawker.runtime.spec import DiskLimits
from hawker.runtime.vmm.contract import Vm, VmDrive

MONITOR = "qmp.sock"
"""In the VMM's directory."""
BALLOON = "/machine/peripheral/balloon"
"""Of the balloon, in QEMU's tree of objects."""

_FIRST_PORT_FD = 4  # 3 is the ledger with its lock
_TRANSLATIONS_MIB = 64  # of emulated code that is kept
_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


def node_of(drive: str) -> str:
    """What QEMU knows a drive by."""
    return f"disk-{drive}"


def command(program: str, vm: Vm, *, accelerates: bool, restored: bool) -> tuple[str, ...]:
    """`restored`: it waits for a snapshot, and then to be told to go on."""
    return (
        program,
        *("-name", vm.machine_id),
        *("-M", "microvm,acpi=on,rtc=on,isa-serial=on,pic=off,pcie=on"),
        *_processor(vm, accelerates),
        *("-m", f"size={vm.max_memory_mib}M"),
        *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
        *("-sandbox", _SANDBOX),
        *("-kernel", vm.kernel, "-initrd", vm.initramfs, "-append", vm.command_line),
        *("-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"),
        *("-chardev", f"socket,id=monitor,path={_escaped(vm.directory)}/{MONITOR},server=on,wait=off"),
        *("-mon", "chardev=monitor,mode=control"),
        *("-object", "rng-builtin,id=rng", "-device", _json(driver="virtio-rng-device", rng="rng")),
        *("-device", _balloon()),
        *(word for place, drive in enumerate(vm.drives) for word in _drive(place, drive)),
        *_ports(vm.fds),
        *_link(vm),
        *(("-incoming", "defer", "-S") if restored else ()),
    )


def _processor(vm: Vm, accelerates: bool) -> Iterator[str]:
    yield from ("-accel", "kvm") if accelerates else ("-accel", f"tcg,thread=multi,tb-size={_TRANSLATIONS_MIB}")
    yield from ("-cpu", "host" if accelerates else "max")
    yield from ("-smp", str(vm.cpus))


def _balloon() -> str:
    """What the guest frees is the host's again, without being asked for."""
    return _json(**{"driver": "virtio-balloon-device", "id": "balloon", "free-page-reporting": True})


def _drive(place: int, drive: VmDrive) -> Iterator[str]:
    """No lock of QEMU's own on the file: the ledger's is ours, and an image has many readers. A workload may write
    zeros: its ledger may get no hole for them, which its reader would take for the end."""
    file = {"driver": "file", "filename": drive.path, "locking": "off", "aio": "threads", "discard": "unmap"}
    disk = {
        "driver": "raw",
        "read-only": drive.read_only,
        "discard": "unmap",
        "detect-zeroes": "off" if drive.name == JOURNAL else "unmap",
        "cache": {"direct": False, "no-flush": False},
        "file": {**file, "read-only": drive.read_only},
    }
    node, limits = node_of(drive.name), drive.limits
    if limits != DiskLimits():
        group = f"limit{place}"
        bounds = {"bps-total": limits.bytes_per_s, "iops-total": limits.operations_per_s}
        yield from ("-object", _json(**{"qom-type": "throttle-group", "id": group, "limits": bounds}))
        disk = {"driver": "throttle", "throttle-group": group, "file": disk}
    yield from ("-blockdev", _json(**disk, **{"node-name": node}))
    yield from ("-device", _json(driver="virtio-blk-device", drive=node, serial=drive.name))


def _ports(fds: int) -> Iterator[str]:
    """A listening socket for each, which we made; port 0 is a console, and not used. On PCI, where a port's queue has
    128 buffers: on MMIO it has 1024, and each port costs the guest 4 MiB of its memory."""
    count = max(0, fds - 1)
    if count:
        serial = {"driver": "virtio-serial-pci", "id": "ports", "max_ports": count + 1, "disable-legacy": "on"}
        yield from ("-device", _json(**serial))
    for port in range(count):
        yield from ("-chardev", f"socket,id=port{port},fd={_FIRST_PORT_FD + port},server=on,wait=off")
        yield "-device"
        yield _json(driver="virtserialport", bus="ports.0", nr=port + 1, chardev=f"port{port}", name=f"hawker.{port}")


def _link(vm: Vm) -> Iterator[str]:
    if vm.link is not None:
        yield from ("-netdev", f"tap,id=link,ifname={vm.link.tap},script=no,downscript=no,vhost=off")
        yield "-device"
        yield _json(driver="virtio-net-device", netdev="link", mac=vm.link.mac, host_mtu=vm.link.mtu)


def _json(**properties: Any) -> str:
    return msgspec.json.encode(properties).decode()


def _escaped(path: str) -> str:
    return path.replace(",", ",,")
