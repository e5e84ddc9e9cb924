"""The control groups of one node's machines: how they are mounted here, what they count, how all in them is held still,
and their end.

Made by the launcher, or by a runtime, at `/hawker-<node>/<machine id>`; only read, frozen, emptied and removed here.
`find_hierarchies` reads the layout; `Cgroups` works in all three: v1, v2, and hybrid (v1 with an almost unused v2
beside it). There an older runtime left plain directories below the mount of v2, which nobody sees and nothing frees:
they are reached through a copy of the tmpfs that is mounted nowhere, so the host's mounts are not touched.
"""

import ctypes
import errno
import os
import select
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from functools import partial
from pathlib import Path

from hawker.errors import NotFound, Unavailable, WrongState
from hawker.host.cgroup_restore import Bounds, is_populated, restore_group
from hawker.host.mount import MountEntry
from hawker.host.rmtree import remove_tree
from hawker.ids import MachineId, NodeId
from hawker.value_object import ValueObject

ReadFile = Callable[[str, str], str]
"""The text of a file of the group, by controller and name. Raises `NotFound`."""

_NO_LIMIT = 1 << 60  # bytes; v1 says so many where it means none


class CgroupUsage(ValueObject, frozen=True):
    """The usage of a control group since it was made; memory and processes are as they are now."""

    cpu_s: float
    """Seconds of cpu, of all cpus together."""
    memory_bytes: int
    """Bytes of memory, with the pages of files that the kernel could drop."""
    pids: int
    """The number of processes and threads."""
    working_set_bytes: int = 0  # memory less the files' pages that the kernel would drop first
    memory_limit_bytes: int | None = None  # None: no limit
    oom_kills: int = 0  # processes that the memory limit ended
    throttled_s: float = 0.0  # how long it was held back for having used its cpu
    read_bytes: int | None = None  # from disks; None where the kernel does not count it
    written_bytes: int | None = None
    """Bytes written to disks; None where the kernel does not count them."""


def read_usage(read: ReadFile, optional: ReadFile, *, unified: bool) -> CgroupUsage:
    """The usage of a control group, from its files. `optional` gives "" where `read` raises: not all kernels have all
    files. `unified`: the files are of v2."""
    return _read_v2(read, optional) if unified else _read_v1(read, optional)


def _read_v2(read: ReadFile, optional: ReadFile) -> CgroupUsage:
    cpu, used = read_flat(read("cpu", "cpu.stat")), int(read("memory", "memory.current"))
    limit = optional("memory", "memory.max").strip()
    disk = _io_stat(optional("io", "io.stat"))
    return CgroupUsage(
        cpu_s=cpu["usage_usec"] / 1e6,
        memory_bytes=used,
        pids=int(read("pids", "pids.current")),
        working_set_bytes=_working_set(used, optional("memory", "memory.stat"), "inactive_file"),
        memory_limit_bytes=int(limit) if limit.isdecimal() else None,
        oom_kills=read_flat(optional("memory", "memory.events")).get("oom_kill", 0),
        throttled_s=cpu.get("throttled_usec", 0) / 1e6,
        read_bytes=disk[0],
        written_bytes=disk[1],
    )


def _read_v1(read: ReadFile, optional: ReadFile) -> CgroupUsage:
    used = int(read("memory", "memory.usage_in_bytes"))
    limit = int(optional("memory", "memory.limit_in_bytes") or _NO_LIMIT)
    disk = _io_service(optional("blkio", "blkio.throttle.io_service_bytes"))
    return CgroupUsage(
        cpu_s=int(read("cpuacct", "cpuacct.usage")) / 1e9,
        memory_bytes=used,
        pids=int(read("pids", "pids.current")),
        working_set_bytes=_working_set(used, optional("memory", "memory.stat"), "total_inactive_file"),
        memory_limit_bytes=limit if limit < _NO_LIMIT else None,
        oom_kills=read_flat(optional("memory", "memory.oom_control")).get("oom_kill", 0),
        throttled_s=read_flat(optional("cpu", "cpu.stat")).get("throttled_time", 0) / 1e9,
        read_bytes=disk[0],
        written_bytes=disk[1],
    )


def _working_set(used: int, stat: str, inactive: str) -> int:
    return max(0, used - read_flat(stat).get(inactive, 0))


def _io_stat(text: str) -> tuple[int, int]:
    """v2: "8:0 rbytes=1 wbytes=2 ..." a device; a group that did nothing has no line."""
    pairs = [pair.partition("=") for pair in text.split() if "=" in pair]
    read = sum(int(value) for name, _, value in pairs if name == "rbytes")
    return read, sum(int(value) for name, _, value in pairs if name == "wbytes")


def _io_service(text: str) -> tuple[int | None, int | None]:
    """v1: "8:0 Read 1" a device and direction, and "Total 1" at the end."""
    if not text:
        return None, None
    lines = [line.split() for line in text.splitlines()]
    read = sum(int(line[2]) for line in lines if len(line) == 3 and line[1] == "Read")
    return read, sum(int(line[2]) for line in lines if len(line) == 3 and line[1] == "Write")


def read_flat(text: str) -> dict[str, int]:
    """The numbers by name of one of the kernel's "flat keyed" files: a name and a number on each line."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


_V1, _V2, _EVENTS = "freezer.state", "cgroup.freeze", "cgroup.events"
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV)  # the last is a file that was open when its group was removed


def freeze(group: Path) -> bool:
    """Begin to hold the group still, or go on with it. Returns whether all of it is held. A process in the middle of a
    call that cannot be interrupted takes a moment. Raises `NotFound` when there is no such group."""
    try:
        _tell(group, "FROZEN" if _is_v1(group) else "1")
    except OSError as error:
        raise NotFound(f"no control group {group.name} that could be frozen") from error
    return is_frozen(group)


def thaw(group: Path) -> None:
    """Let the group go on. No error when it is not frozen, or not there."""
    with unless_gone():
        _tell(group, "THAWED" if _is_v1(group) else "0")


@contextmanager
def unless_gone() -> Iterator[None]:
    """Within the block it is no error when a control group's file is not there, or goes away between its opening and
    its use: another caller that ends the same machine was faster."""
    try:
        yield
    except OSError as error:
        if error.errno not in _GONE:
            raise


def is_frozen(group: Path) -> bool:
    """Whether the whole group is held still. False for a group that is not there."""
    try:
        if _is_v1(group):
            return (group / _V1).read_text().strip() == "FROZEN"
        return "frozen 1" in (group / _EVENTS).read_text().splitlines()
    except OSError:
        return False


def _is_v1(group: Path) -> bool:
    return (group / _V1).exists()


def _tell(group: Path, word: str) -> None:
    """The kernel makes the file; a group without one is not given any."""
    fd = os.open(group / (_V1 if _is_v1(group) else _V2), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    with os.fdopen(fd, "w") as file:
        file.write(word)


_libc = ctypes.CDLL(None, use_errno=True)
_OPEN_TREE = 428  # on every architecture
_CLONE = 1


def machines_below(mount: Path, parent: str) -> list[str]:
    """The names in the directory `parent` below the file system that is mounted at `mount`, which hides it; none where
    it cannot be seen."""
    with _below(mount) as place:
        with suppress(OSError):
            return sorted(os.listdir(f"{place}/{parent}"))
        return []


def remove_below(mount: Path, parent: str, name: str) -> None:
    """Remove the directory `name` in the hidden directory `parent`, and `parent` when `name` was its last."""
    with _below(mount) as place:
        if place is not None and os.path.isdir(f"{place}/{parent}/{name}"):
            remove_tree(Path(place, parent, name))
            with suppress(OSError):
                os.rmdir(f"{place}/{parent}")


@contextmanager
def _below(mount: Path) -> Iterator[str | None]:
    """The directory that the mount hides, of a copy of the file system that it is in; None where there is no copy to be
    had."""
    copy = _libc.syscall(_OPEN_TREE, -1, os.fsencode(mount.parent), _CLONE | os.O_CLOEXEC)
    if copy < 0:
        yield None
        return
    try:
        yield f"/proc/self/fd/{copy}/{mount.name}"
    finally:
        os.close(copy)


_KILL_TRIES = 20
_LINKS_OF_A_LEAF = 2
_DYING_S = 10.0  # how long the kernel may take to end processes that were sent SIGKILL


class CgroupLayout(Enum):
    V1 = "v1"
    V2 = "v2"
    HYBRID = "hybrid"
    NONE = "none"


class Hierarchies(ValueObject, frozen=True):
    """The trees of control groups of a host. `v1` maps a controller's name to the mount of its tree; `v2` is the mount
    of the unified tree."""

    v1: Mapping[str, Path]
    v2: Path | None

    @property
    def layout(self) -> CgroupLayout:
        if self.v1:
            return CgroupLayout.HYBRID if self.v2 else CgroupLayout.V1
        return CgroupLayout.V2 if self.v2 else CgroupLayout.NONE

    def of(self, controller: str) -> Path:
        """The tree that has the controller. Raises `NotFound`."""
        tree = self.v1.get(controller, None if self.v1 else self.v2)
        if tree is None:
            raise NotFound(f"no cgroup controller '{controller}' on this host")
        return tree

    def trees(self) -> list[Path]:
        """The trees in each of which the runtime makes a machine's group."""
        if self.v1:
            return sorted(set(self.v1.values()))
        return [self.v2] if self.v2 else []


def find_hierarchies(mounted: Iterable[MountEntry]) -> Hierarchies:
    """The trees in a list of mounts. A v1 tree is known by the controllers among its filesystem options."""
    v1: dict[str, Path] = {}
    v2: Path | None = None
    for mount in mounted:
        if mount.fstype == "cgroup2" and v2 is None:
            v2 = mount.target
        elif mount.fstype == "cgroup":
            v1.update(dict.fromkeys(mount.options.split(","), mount.target))
    return Hierarchies({name: tree for name, tree in v1.items() if name not in ("rw", "ro", "xattr")}, v2)


class Cgroups:
    """The control groups of one node's machines. Only `kill` blocks, and it is bounded."""

    def __init__(self, node_id: NodeId, hierarchies: Hierarchies) -> None:
        self._parent = f"hawker-{node_id[:4]}"
        self.hierarchies = hierarchies
        self._hidden = hierarchies.v2 if hierarchies.layout is CgroupLayout.HYBRID else None
        self._below = frozenset[str]()  # of which machines something was below the mount of v2 when it was listed
        self._unified = hierarchies.layout is CgroupLayout.V2

    @property
    def layout(self) -> CgroupLayout:
        return self.hierarchies.layout

    def path_of(self, machine_id: MachineId) -> str:
        """The path of the machine's group within each tree; the runtime is told this path."""
        return f"/{self._parent}/{machine_id}"

    def group(self, controller: str, machine_id: MachineId) -> Path:
        """The machine's group in the tree that has the controller; whether it is there is for the caller to see.
        Raises `NotFound` when no tree has it."""
        return self.tree(controller) / self._parent / machine_id

    def tree(self, controller: str) -> Path:
        """The tree that has the controller. Raises `NotFound` when no tree has it."""
        return self.hierarchies.of(controller)

    def has(self, controller: str) -> bool:
        """Whether a tree has the controller. In v2 the one tree has every controller, and the freezer too."""
        return self._unified or controller in self.hierarchies.v1

    def oom_kills(self, machine_id: MachineId) -> int:
        """How many processes the memory limit has killed; 0 when the group is gone."""
        name = "memory.events" if self._unified else "memory.oom_control"
        try:
            return read_flat(self._read(machine_id, "memory", name)).get("oom_kill", 0)
        except NotFound:
            return 0

    def usage(self, machine_id: MachineId) -> CgroupUsage:
        """The usage of the machine's group. Raises `NotFound` when the machine has no group."""
        read, optional = partial(self._read, machine_id), partial(self._read_optional, machine_id)
        return read_usage(read, optional, unified=self._unified)

    def knows(self, machine_id: MachineId) -> bool:
        """Whether any tree has a group of the machine, or something of it was listed below the mount of v2."""
        own = f"{self._parent}/{machine_id}"
        there = any(os.path.lexists(f"{tree}/{own}") for tree in self.hierarchies.trees())
        return there or machine_id in self._below

    def list(self) -> list[MachineId]:
        """Every machine with a group in any tree, or with directories that an older runtime left below the mount of
        v2."""
        if self._hidden is not None:
            self._below = frozenset(machines_below(self._hidden, self._parent))
        found = set(self._below)
        for tree in self.hierarchies.trees():
            with suppress(FileNotFoundError), os.scandir(tree / self._parent) as entries:
                found.update(entry.name for entry in entries if entry.is_dir())
        return [MachineId(name) for name in sorted(found)]

    def is_lost(self, machine_id: MachineId) -> bool:
        """Whether a running machine is outside of its group in a tree that limits it, for example because the group was
        removed."""
        own = Path(self._parent) / machine_id
        return not all(is_populated(tree / own) for tree in self._limiting())

    def gather(self, machine_id: MachineId, bounds: Bounds, pids: Iterable[int], devices: Iterable[str] = ()) -> None:
        """Put these processes of a running machine into its group, which is made where it is missing, with these bounds
        and with rules for more devices than the usual ones. Raises `WrongState` where only the runtime can make the
        whole group."""
        if self._unified:
            text = f"the device rules of machine {machine_id} went with its control group: restart it"
            raise WrongState(text)
        restore_group(self.hierarchies.trees(), Path(self._parent) / machine_id, bounds, pids, tuple(devices))

    def _limiting(self) -> set[Path]:
        names = ("cpu", "memory", "pids", "devices")
        return {self.hierarchies.v1[name] for name in names if name in self.hierarchies.v1} or {
            *self.hierarchies.trees()
        }

    def kill(self, machine_id: MachineId) -> None:
        """End every process of the group and return once they are dead. Raises `Unavailable` when they will not die. In
        v1 a frozen process does not even die, so the group is thawed first."""
        if self.has("freezer"):
            thaw(self.group("freezer", machine_id))
        for tree in self.hierarchies.trees():
            for group in _subtree(f"{tree}/{self._parent}/{machine_id}"):
                _kill_all(group, at_once=self._unified)

    def remove(self, machine_id: MachineId) -> None:
        """Remove the group from every tree, after `kill` where processes are in it; the node's own parent group too
        when it was the last. Groups without a process, as a pilot that has ended leaves them, are removed at once: the
        kernel refuses the others."""
        try:
            self._remove_groups(machine_id)
        except OSError:
            self.kill(machine_id)
            self._remove_groups(machine_id)
        if self._hidden is not None:
            remove_below(self._hidden, self._parent, machine_id)
            self._below -= {machine_id}

    def _remove_groups(self, machine_id: MachineId) -> None:
        for tree in self.hierarchies.trees():
            for group in _subtree(f"{tree}/{self._parent}/{machine_id}"):
                with suppress(FileNotFoundError):
                    os.rmdir(group)
            with suppress(OSError):  # other machines' groups are in it, or it is gone
                os.rmdir(f"{tree}/{self._parent}")

    def _read(self, machine_id: MachineId, controller: str, name: str) -> str:
        group = self.group(controller, machine_id)
        try:
            return (group / name).read_text()
        except OSError as error:
            raise NotFound(f"no {name} of machine {machine_id}") from error

    def _read_optional(self, machine_id: MachineId, controller: str, name: str) -> str:
        try:
            return self._read(machine_id, controller, name)
        except NotFound:
            return ""


def _subtree(group: str) -> list[str]:
    """The group and all below it, innermost first. A group without any below it has two links."""
    try:
        if os.lstat(group).st_nlink == _LINKS_OF_A_LEAF:
            return [group]
    except FileNotFoundError:
        return []
    return [path for path, _, _ in os.walk(group, topdown=False)]


def _kill_all(group: str, *, at_once: bool) -> None:
    """Processes may fork meanwhile, so look again until none is left. v2 can kill a whole group at once."""
    if at_once and os.path.exists(f"{group}/cgroup.kill"):
        with unless_gone():
            Path(group, "cgroup.kill").write_text("1")
    for _ in range(_KILL_TRIES):
        pids = _processes(group)
        if not pids:
            return
        _kill_and_wait(pids)
    raise Unavailable(f"processes of {os.path.basename(group)} do not end")


def _processes(group: str) -> list[int]:
    try:
        with open(f"{group}/cgroup.procs", "rb") as file:
            return [int(line) for line in file.read().split()]
    except OSError:
        return []


def _kill_and_wait(pids: list[int]) -> None:
    with ExitStack() as stack:
        waiting = select.poll()
        left = set[int]()
        for pid in pids:
            with suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                stack.callback(os.close, handle)
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                waiting.register(handle, select.POLLIN)
                left.add(handle)
        while left:
            ended = waiting.poll(_DYING_S * 1000)
            if not ended:
                raise Unavailable(f"process does not end after SIGKILL, one of {pids}")
            for handle, _ in ended:
                waiting.unregister(handle)
                left.discard(handle)
