"""QEMU as a `Vmm`: the `microvm` machine, with KVM or emulated, told what to do over QMP.

A snapshot is QEMU's migration stream in one file. We open it and pass the descriptor: QEMU may neither run a program
for it nor be trusted with a path.
"""

import os
import shutil
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec

from hawker.clock import Clock
from hawker.errors import CannotStart, SnapshotLost, Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.host.facts import tsc_khz
from hawker.runtime.pilot.channel import PilotChannel
from hawker.runtime.pilot.messages import JOURNAL
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.serial_ports import SerialPortsChannel
from hawker.runtime.spec import DiskLimits
from hawker.runtime.vmm.balloon import followed
from hawker.runtime.vmm.contract import Restored, Vm, VmDrive
from hawker.runtime.vmm.qmp import Monitor, QmpAbsent, monitor

MONITOR = "qmp.sock"
"""In the VMM's directory."""
BALLOON = "/machine/peripheral/balloon"
"""Of the balloon, in QEMU's tree of objects."""

_FIRST_PORT_FD = 4  # 3 is the ledger with its lock
_TRANSLATIONS_MIB = 64  # of emulated code that is kept
_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


# QEMU's command line for one microVM. Pure. The machine type is `microvm` with ACPI, by which a distribution's
# kernel finds the devices. What the guest writes is in the host's page cache before it is told so, and a flush is
# an fsync: an end of QEMU loses nothing that was written. Options and properties: QEMU's manual, "microvm virtual
# platform", and the output of `-device NAME,help`.


def node_of(drive: str) -> str:
    """What QEMU knows a drive by."""
    return f"disk-{drive}"


def command_line(program: str, vm: Vm, *, accelerates: bool, restored: bool) -> tuple[str, ...]:
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
    zeros: its ledger may get no hole for them, which its reader would take for the end. The guest is told of a write
    for which the host has no room: QEMU would stop it for good otherwise."""
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
    yield from ("-device", _json(driver="virtio-blk-device", drive=node, serial=drive.name, werror="report"))


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


MEMORY_FILE = "memory"
"""The one file of a snapshot."""

_PROGRAM = "qemu-system-x86_64"
_EMULATED_TIMER_KHZ = 62_500  # of its local APIC, which counts nanoseconds: Linux divides them by 16
_APPEARS_S = 20.0  # from the launch to a monitor that listens
_LOOK_EVERY_S = 0.02
_SAVING_S, _SAVED_MIB_PER_S = 30.0, 20  # the slowest disk that is waited for
_LET_GO_S = 10.0
_UNDER_WAY = frozenset({"setup", "active", "device", "pre-switchover"})
_OVERDUE = "overdue"
_UNBOUNDED = 1 << 40  # bytes a second of a migration
_MIB = 1 << 20


class _Balloon(msgspec.Struct, frozen=True, kw_only=True):
    actual: int


class Qemu:
    """Keeps `Vmm`. `accelerates`: with KVM."""

    name = "qemu"
    program = _PROGRAM
    kernel_format = "bzImage"
    power_off = "reboot"
    snapshots = True
    gpus = False
    overhead_mib = 160

    def __init__(self, clock: Clock, *, accelerates: bool) -> None:
        self._clock = clock
        self.accelerates = accelerates
        self.timer_khz = None if accelerates else _EMULATED_TIMER_KHZ
        self._counter_khz = None if accelerates else tsc_khz(clock)

    def channel(self) -> PilotChannel:
        return SerialPortsChannel(self._clock)

    def console(self) -> str:
        """A triple fault is what ends it. On a busy host an emulated guest could not find out its counter's speed, and
        would hang; or take the counter for broken by a worse clock, and lose time from then on."""
        counter = f" tsc_early_khz={self._counter_khz} tsc=reliable" if self._counter_khz else ""
        return f"console=ttyS0 reboot=t{counter}"

    async def check(self) -> None:
        self._find()

    async def version(self) -> str:
        try:
            with anyio.fail_after(_APPEARS_S):
                found = await anyio.run_process((self._find(), "--version"), stdin=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError, TimeoutError) as error:
            raise CannotStart(f"{_PROGRAM} does not tell its version: {error}") from error
        return found.stdout.decode("utf-8", "replace").partition("\n")[0]

    def argv(self, vm: Vm, restored: Restored | None) -> tuple[str, ...]:
        return command_line(self._find(), vm, accelerates=self.accelerates, restored=restored is not None)

    async def boot(self, vm: Vm, run: RunDir, restored: Restored | None) -> None:
        async with self._reached(run) as qemu:
            if restored is not None:
                await _load(qemu, _directory(run, restored.directory), _patience_s(vm))
            elif vm.memory_mib < vm.max_memory_mib:
                await qemu.run("balloon", {"value": vm.memory_mib * _MIB})

    async def save(self, vm: Vm, run: RunDir, directory: str) -> None:
        place = _directory(run, directory)
        async with self._reached(run) as qemu:
            await qemu.run("stop")
            try:
                with _opened(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as fd:
                    await _write(qemu, fd, _patience_s(vm))
                    await in_thread(Pool.HOST, os.fsync, fd)
            except BaseException:
                with anyio.move_on_after(_LET_GO_S, shield=True):
                    await _give_up(qemu, place)
                raise

    async def proceed(self, run: RunDir) -> None:
        async with self._reached(run) as qemu:
            await qemu.run("cont")

    async def end(self, run: RunDir) -> None:
        with suppress(Unavailable):
            async with monitor(run.vmm / MONITOR) as qemu:
                await qemu.run("quit")

    async def inflate(self, run: RunDir, guest_mib: int) -> None:
        """Returns once the guest has followed; the balloon keeps its new size when this raises."""
        async with self._reached(run) as qemu:
            before = (await qemu.ask("query-balloon", _Balloon)).actual
            wanted = guest_mib * _MIB
            await qemu.run("balloon", {"value": wanted})

            async def actual() -> int:
                return (await qemu.ask("query-balloon", _Balloon)).actual

            await followed(actual, before, wanted, guest_mib, self._clock)

    async def enlarge(self, run: RunDir, drive: str, size_bytes: int) -> None:
        async with self._reached(run) as qemu:
            await qemu.run("block_resize", {"node-name": node_of(drive), "size": size_bytes})

    def _find(self) -> str:
        found = shutil.which(_PROGRAM)
        if found is None:
            raise CannotStart(f"{_PROGRAM} is missing: apt-get install qemu-system-x86")
        return found

    @asynccontextmanager
    async def _reached(self, run: RunDir) -> AsyncIterator[Monitor]:
        """Waits for a QEMU that is just beginning. Raises `Unavailable` when it has ended."""
        async with AsyncExitStack() as stack:
            try:
                with anyio.fail_after(_APPEARS_S):
                    found = await self._appeared(run, stack)
            except TimeoutError as error:
                raise Unavailable(f"QEMU's monitor does not answer within {_APPEARS_S:g} s") from error
            yield found

    async def _appeared(self, run: RunDir, stack: AsyncExitStack) -> Monitor:
        while True:
            try:
                return await stack.enter_async_context(monitor(run.vmm / MONITOR))
            except QmpAbsent:
                if not run.alive():
                    raise
            await self._clock.sleep(_LOOK_EVERY_S)


async def _write(qemu: Monitor, fd: int, within_s: float) -> None:
    await _tell_of_migration(qemu)
    await qemu.run("migrate-set-parameters", {"max-bandwidth": _UNBOUNDED})
    await qemu.run("getfd", {"fdname": MEMORY_FILE}, fd=fd)
    await qemu.run("migrate", {"uri": f"fd:{MEMORY_FILE}"})
    status = await _migrated(qemu, within_s)
    if status != "completed":
        raise Unavailable(f"QEMU could not write the machine's memory: migration {status}; is the disk full?")


async def _load(qemu: Monitor, place: Path, within_s: float) -> None:
    """A QEMU that does not take a snapshot ends."""
    try:
        with _opened(place, os.O_RDONLY) as fd:
            await _tell_of_migration(qemu)
            await qemu.run("getfd", {"fdname": MEMORY_FILE}, fd=fd)
            await qemu.run("migrate-incoming", {"uri": f"fd:{MEMORY_FILE}"})
            status = await _migrated(qemu, within_s)
    except Unavailable as error:
        raise SnapshotLost(f"QEMU does not take the snapshot: {error}") from error
    if status == _OVERDUE:
        raise Unavailable(f"QEMU has not read the machine's memory within {within_s:g} s")
    if status != "completed":
        raise SnapshotLost(f"QEMU does not take the snapshot: migration {status}")


async def _tell_of_migration(qemu: Monitor) -> None:
    await qemu.run("migrate-set-capabilities", {"capabilities": [{"capability": "events", "state": True}]})


async def _migrated(qemu: Monitor, within_s: float) -> str:
    """How it came out: "completed", "failed", "cancelled", or `_OVERDUE`."""
    with anyio.move_on_after(within_s):
        while (event := await qemu.event("MIGRATION")).status in _UNDER_WAY:
            pass
        return event.status
    return _OVERDUE


async def _give_up(qemu: Monitor, place: Path) -> None:
    with suppress(Unavailable):
        await qemu.run("migrate_cancel")
    with suppress(OSError):
        (place / MEMORY_FILE).unlink()
    with suppress(Unavailable):
        await qemu.run("cont")


def _patience_s(vm: Vm) -> float:
    return _SAVING_S + vm.max_memory_mib / _SAVED_MIB_PER_S


def _directory(run: RunDir, inside: str) -> Path:
    """The host's path of a directory that the jail shows below the VMM's own."""
    return run.vmm / Path(inside).name


@contextmanager
def _opened(directory: Path, flags: int) -> Iterator[int]:
    """The memory file. The VMM may write to all that is around it: no link is followed, and it must be a file. Raises
    `Unavailable`."""
    try:
        place = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            safe = flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open(MEMORY_FILE, safe, 0o600, dir_fd=place)
        finally:
            os.close(place)
    except OSError as error:
        raise Unavailable(f"the machine's memory file cannot be opened: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Unavailable("the machine's memory file is not a file: its directory was tampered with")
        yield fd
    finally:
        os.close(fd)
