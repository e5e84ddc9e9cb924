"""What a driver is told of an instance: values, complete enough that another daemon can carry them out."""

from enum import StrEnum

import msgspec

from hawker.ids import InstanceId, MachineId


class InstanceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel enforces. `cpus` is whole cpus; `cpu_weight` is the relative share, 1 to 10000 (cgroup v2)."""

    cpus: int
    cpu_weight: int
    memory_mib: int
    pids: int
    swap_mib: int = 0


class FileSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the pilot writes inside the machine before the first process starts; parents are made."""

    path: str
    content: bytes
    mode: int = 0o644


class MountSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A directory of the host, `source`, that is seen as `target` inside."""

    source: str
    target: str
    read_only: bool = False


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a machine. `argv` is complete; `user` is "", "name", "uid", "name:group" or "uid:gid", looked up
    inside the machine; `cwd` is absolute; `tty` gives it a terminal as stdin, stdout and stderr.

    With a `root` it is a container of the machine: it has that root filesystem, in which its user, its `cwd`, its
    `mounts` and its `files` are (written before each of its runs), and shares network, process ids and limits with the
    others. They are one tenant: a container's root user can reach the others. When a run of it ends, so does all else
    that runs in it."""

    argv: tuple[str, ...]
    env: dict[str, str]
    user: str = ""
    cwd: str = "/"
    tty: bool = False
    name: str = ""  # the container's, unique in its machine: a letter or digit, then letters, digits, "_", "." and "-"
    root: str | None = None  # a mounted root filesystem of its own
    held: bool = False  # not started with the machine, only by `start_process`
    mounts: tuple[MountSpec, ...] = ()  # inside `root`
    files: tuple[FileSpec, ...] = ()  # inside `root`


class DiskLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of each disk of a machine with a kernel of its own; 0: none."""

    bytes_per_s: int = 0
    operations_per_s: int = 0


class RootDisk(msgspec.Struct, frozen=True, kw_only=True):
    """The root filesystem of a machine with a kernel of its own, as block files of the host: `image`, read-only, which
    all machines of the image share, below `layer`, a writable ext4 of the machine's own."""

    image: str
    layer: str


class VolumeDisk(msgspec.Struct, frozen=True, kw_only=True):
    """A block file of the host that a machine with a kernel of its own mounts at `target`. `name` is unique in the
    machine: 1 to 20 letters, digits and dashes."""

    name: str
    file: str
    target: str
    fstype: str = "ext4"
    read_only: bool = False


class GuestLink(msgspec.Struct, frozen=True, kw_only=True):
    """The network of a machine with a kernel of its own: `tap` in the spec's network namespace is `name` inside, with
    these addresses ("fdaa::3/64") and a default route by each gateway."""

    mac: str
    addresses: tuple[str, ...]
    gateways: tuple[str, ...]
    mtu: int = 1500
    name: str = "eth0"
    tap: str = "tap0"


class Ends(StrEnum):
    """When an instance ends, but for `stop` and `destroy`."""

    FIRST = "first"  # with the first of its processes
    TOLD = "told"  # when `conclude` says so; until then the ends of its processes are noted, and no more


class InstanceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """All that a driver needs to run one instance. Stored with the machine; complete, so that a new daemon can finish
    the start that an old one began. Paths are on the host."""

    machine_id: MachineId
    instance_id: InstanceId
    hostname: str
    processes: tuple[ProcessSpec, ...]
    files: tuple[FileSpec, ...] = ()
    limits: InstanceLimits
    ends: Ends = Ends.FIRST
    rootfs: str | None = None  # a mounted root filesystem, maybe an empty directory; None for drivers without one
    mounts: tuple[MountSpec, ...] = ()
    netns: str | None = None  # a bound network namespace file; None: the host's network
    root_disk: RootDisk | None = None  # this and what follows, with a kernel of its own
    volumes: tuple[VolumeDisk, ...] = ()
    link: GuestLink | None = None
    disk_limits: DiskLimits = DiskLimits()
    kernel_args: tuple[str, ...] = ()  # appended to the kernel's command line
    max_memory_mib: int | None = None  # up to which the memory limit may be raised while it runs; None: no further
    gpus: tuple[str, ...] = ()  # PCI addresses of devices that are the machine's alone: "0000:65:00.0"
    output_bytes: int = 8 << 20  # how much of its output is kept, at the least half of it
    stop_signal: str = "SIGINT"
    stop_timeout_s: float = 5.0
