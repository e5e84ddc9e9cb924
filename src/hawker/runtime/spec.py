"""What a driver is told of an instance: values, complete enough that another daemon can carry them out."""

from enum import StrEnum

import msgspec

from hawker.ids import InstanceId, MachineId


class InstanceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that the kernel enforces on all processes of an instance together."""

    cpus: int  # whole cpus, 1 or more: so much cpu time a second; a machine with a kernel of its own has as many
    cpu_weight: int  # 1 to 10000 (cgroup v2): the share where machines compete for cpus
    memory_mib: int  # MiB, 1 or more; whoever needs more is ended
    pids: int  # processes and threads at a time, 1 or more; a fork beyond fails
    swap_mib: int = 0  # MiB of swap beside the memory; 0: none


class FileSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is written inside the machine before the first process starts; parents are made."""

    path: str  # absolute, inside
    source: str | None = None  # a file of the host whose content it gets, of any size, in the place of `content`
    content: bytes = b""  # all files, config and environment together: 4 MiB at most
    mode: int = 0o644  # permission bits


class MountSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A directory of the host, `source`, that is seen as `target` inside. Both are absolute."""

    source: str
    target: str
    read_only: bool = False
    """Whether no process inside can write to it."""
    mapped: bool = False  # its files have the machine's own ids on the disk: 0 is its root, in whatever range that is


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a machine.

    With a `root` it is a container of the machine: it has that root filesystem, in which its user, its `cwd`, its
    `mounts` and its `files` are (written before each of its runs), and shares network, process ids and limits with the
    others. They are one tenant: a container's root user can reach the others. When a run of it ends, so does all else
    that runs in it."""

    argv: tuple[str, ...]  # complete: nothing is added; the first is looked up in the PATH of `env` inside
    env: dict[str, str]  # complete, but for what the pilot adds
    user: str = ""  # "", "name", "uid", "name:group" or "uid:gid", looked up inside; "": root
    cwd: str = "/"  # absolute, inside
    tty: bool = False  # it has a terminal as stdin, stdout and stderr
    stdin: bool = False  # its input stays open for whoever attaches; without: it has none
    name: str = ""  # the container's, unique in its machine: a letter or digit, then letters, digits, "_", "." and "-"
    root: str | None = None  # a mounted root filesystem of its own; None: the machine's
    held: bool = False  # not started with the machine, only by `start_process`
    mounts: tuple[MountSpec, ...] = ()  # inside `root`
    files: tuple[FileSpec, ...] = ()  # inside `root`


class DiskLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of each disk of a machine with a kernel of its own; reads and writes wait beyond them."""

    bytes_per_s: int = 0  # 0: no limit
    operations_per_s: int = 0  # 0: no limit


class RootDisk(msgspec.Struct, frozen=True, kw_only=True):
    """The root filesystem of a machine with a kernel of its own, as block files of the host."""

    image: str  # read-only; all machines of the image share it
    layer: str  # a writable ext4 of the machine's own, laid over the image


class VolumeDisk(msgspec.Struct, frozen=True, kw_only=True):
    """A block file of the host that a machine with a kernel of its own mounts; at most 32 a machine."""

    name: str  # unique in the machine: 1 to 20 letters, digits and dashes
    file: str
    """The block file's absolute path on the host."""
    target: str  # absolute, inside
    fstype: str = "ext4"
    """The name of the file system in it, as mount(2) takes it."""
    read_only: bool = False
    """Whether the machine can only read it."""


class GuestLink(msgspec.Struct, frozen=True, kw_only=True):
    """The network of a machine with a kernel of its own."""

    mac: str  # of the interface inside: "02:00:00:00:00:01"
    addresses: tuple[str, ...]  # of the interface inside: "fdaa::3/64"
    gateways: tuple[str, ...]  # a default route by each: "fdaa::1"
    mtu: int = 1500  # bytes
    name: str = "eth0"  # of the interface inside
    tap: str = "tap0"  # of the device in the spec's network namespace


class Ends(StrEnum):
    """The moment when an instance ends, but for `stop` and `destroy`."""

    FIRST = "first"  # with the first of its processes
    TOLD = "told"  # when `conclude` says so; until then the ends of its processes are noted, and no more


class InstanceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a driver needs to run one instance. Stored with the machine; complete, so that a new daemon can
    finish the start that an old one began. Paths are on the host."""

    machine_id: MachineId
    instance_id: InstanceId  # another one for each start of the machine
    hostname: str  # inside
    processes: tuple[ProcessSpec, ...]  # 1 to 32; calls name them by their place here
    files: tuple[FileSpec, ...] = ()  # in the machine's root filesystem
    limits: InstanceLimits
    ends: Ends = Ends.FIRST
    rootfs: str | None = None  # a mounted root filesystem, maybe an empty directory; None for drivers without one
    mounts: tuple[MountSpec, ...] = ()  # in the machine's root filesystem
    netns: str | None = None  # a bound network namespace file; None: the host's network
    first_id: int | None = None  # which user and group of the host are its 0; 65,536 are its own. None: the host's 0
    root_disk: RootDisk | None = None  # this and what follows, with a kernel of its own
    volumes: tuple[VolumeDisk, ...] = ()
    link: GuestLink | None = None  # None: no network
    disk_limits: DiskLimits = DiskLimits()
    kernel_args: tuple[str, ...] = ()  # appended to the kernel's command line
    max_memory_mib: int | None = None  # up to which the memory limit may be raised while it runs; None: no further
    gpus: tuple[str, ...] = ()  # PCI addresses of devices that are the machine's alone: "0000:65:00.0"
    output_bytes: int = 8 << 20  # how much of its output is kept, at the least half of it; 0: the pilot's own 8 MiB
    stop_signal: str = "SIGINT"  # sent to its processes where the pilot is told to end without another signal
    stop_timeout_s: float = 5.0  # from that signal to SIGKILL; seven weeks at most
