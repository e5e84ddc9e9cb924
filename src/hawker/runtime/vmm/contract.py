"""What a microVM is to any virtual machine monitor (VMM), and the two contracts that `runtime/microvm.py` joins.

A `Vmm` turns a `Vm` into a command line and, where the VMM has one, into requests to its API. A `Jail` runs that
command as a user of its own, with nothing of the host but what it is granted. Neither knows the other, machines or
flows.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from hawker.host.cgroup_restore import Bounds
from hawker.ids import MachineId
from hawker.runtime.pilot.channel import PilotChannel
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import DiskLimits, GuestLink
from hawker.value_object import ValueObject

NO_LIMITS = DiskLimits()


class VmDrive(ValueObject, frozen=True):
    """One disk of a virtual machine."""

    name: str  # its serial number, where the VMM can give it one: letters, digits and dashes
    path: str  # of the block file, in the jail
    read_only: bool
    """The guest can read it alone."""
    limits: DiskLimits = NO_LIMITS


class Vm(ValueObject, frozen=True):
    """Everything that one boot needs. Paths are as the VMM sees them in its jail."""

    machine_id: MachineId
    cpus: int  # virtual ones, 1 or more
    memory_mib: int  # MiB that the guest may use at first
    max_memory_mib: int  # MiB that it is made with; what is more than `memory_mib` is in its balloon
    kernel: str  # path, of the VMM's `kernel_format`
    initramfs: str  # path
    command_line: str  # the kernel's, complete; 2047 bytes at most
    drives: tuple[VmDrive, ...]  # in the order that the kernel's command line names them in
    directory: str  # the VMM's own, the only place that it can write to: sockets, snapshots; the host's `RunDir.vmm`
    link: GuestLink | None = None  # None: no network
    gpus: tuple[str, ...] = ()  # PCI addresses
    fds: int = 0  # how many descriptors from 3 on it inherits, as `Vmm.channel` makes them


class Restored(ValueObject, frozen=True):
    """The snapshot that a `Vm` goes on from."""

    directory: str  # as the VMM sees it
    program: str  # what wrote it, as `Vmm.version` named it


class Vmm(Protocol):
    """One monitor. Remembers nothing: each call finds its way from the arguments and the sockets in `run.vmm`."""

    name: str  # "qemu", "firecracker", "cloud-hypervisor"
    program: str  # what it is called on the PATH
    accelerates: bool  # with KVM; else it emulates
    kernel_format: str  # "bzImage" or "vmlinux"
    power_off: str  # what ends it: "reboot" or "poweroff"
    snapshots: bool  # it can write its guest's memory to a file, and go on from there
    gpus: bool  # it can give devices of the host to its guest
    overhead_mib: int  # MiB that the VMM needs at the most beside the guest's memory
    timer_khz: int | None
    """The frequency of the timer that its guest's kernel measures, and has to have right; None: it measures none."""

    def channel(self) -> PilotChannel:
        """How its machines' pilots are reached."""

    def console(self) -> str:
        """The kernel's arguments for its console and whatever else is this VMM's own: "console=ttyS0 reboot=t"."""

    async def check(self) -> None:
        """Raises `CannotStart` with what to do."""

    async def version(self) -> str:
        """Its program's own words: "Firecracker v1.16.1". Raises `CannotStart`."""

    def argv(self, vm: Vm, restored: Restored | None) -> tuple[str, ...]:
        """The command, a path first. Pure."""

    async def boot(self, vm: Vm, run: RunDir, restored: Restored | None) -> None:
        """After the process runs: say what the command line does not, and let the guest go; one that is restored stays
        held still until `proceed`. Raises `Unavailable` when the VMM ends or refuses; `SnapshotLost` when it does not
        take the snapshot."""

    async def save(self, vm: Vm, run: RunDir, directory: str) -> None:
        """Hold the guest still and write its memory and devices to a directory. It stays still; on an error it goes on
        and nothing is left there. Raises `Unavailable`, as the calls below do."""

    async def proceed(self, run: RunDir) -> None:
        """Let a guest that is held still go on; no error when it does."""

    async def end(self, run: RunDir) -> None:
        """Have the VMM end itself, as after `save`. No error when it has."""

    async def inflate(self, run: RunDir, guest_mib: int) -> None:
        """Let the guest have so many MiB of its memory, by the balloon. Returns once the guest has followed."""

    async def enlarge(self, run: RunDir, drive: str, size_bytes: int) -> None:
        """Tell the guest that a drive's file has grown."""


class JailGrant(ValueObject, frozen=True):
    """A file, directory or block device of the host that the jail shows. `Jail.launch` gives its user what is writable,
    and lets it read the rest. Nothing in `RunDir.vmm` is granted, but that directory itself."""

    source: Path  # on the host
    target: str  # absolute, in the jail
    writable: bool = False
    """The VMM may write there, otherwise read alone."""


class JailCell(ValueObject, frozen=True):
    """One machine's jail: what runs in it, as whom, with what of the host."""

    machine_id: MachineId
    uid: int  # user and group of the VMM, the machine's own
    argv: tuple[str, ...]  # the command, a path of the host first
    grants: tuple[JailGrant, ...]
    devices: tuple[str, ...]  # paths such as /dev/kvm, readable and writable by `uid`
    netns: str | None  # a bound network namespace file; None: an empty network
    bounds: Bounds  # of VMM and guest together
    fds: Sequence[int] = ()  # become 3, 4, ... of the command


class VmmEnd(ValueObject, frozen=True):
    """How a VMM ended, as its keeper saw it, and the last of what the guest's kernel said on its console."""

    status: int  # an exit status, 0 to 255, or minus a signal
    at: float  # Unix seconds
    console: bytes  # 64 KiB at most


class Jail(Protocol):
    """Runs VMMs. Every call is idempotent. All processes of a machine are in its control group, its keeper excepted:
    the keeper is the parent of the VMM on the host; it holds the lock on the journal, keeps a bounded ring of the
    console, and writes down how the VMM ended, whether a daemon is there or not."""

    name: str

    async def check(self) -> None:
        """Raises `CannotStart` with what to do."""

    def inside(self, source: Path, name: str) -> str:
        """The path in a jail at which a granted file called `name` is best shown."""

    async def launch(self, cell: JailCell, run: RunDir) -> int:
        """Start keeper and VMM; the keeper's pid. The first of `cell.fds` holds the journal's lock: keeper and
        VMM both inherit it. Raises `Unavailable` with the reason."""

    async def kill(self, machine_id: MachineId, run: RunDir, pid: int | None) -> None:
        """SIGKILL everything and return when nobody is left; nobody there is no error."""

    async def clear(self, machine_id: MachineId, run: RunDir) -> None:
        """Remove what `launch` made outside of `run`. Called after `kill`."""

    def ended(self, run: RunDir) -> VmmEnd | None:
        """None while it runs, and when the keeper was ended before it could say."""

    def console(self, run: RunDir) -> bytes:
        """The last 64 KiB at most, also while it runs."""
