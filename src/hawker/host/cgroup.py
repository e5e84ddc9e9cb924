"""The control groups of one node's machines: how they are mounted here, what they count, and their end.

Made by the launcher, or by a runtime, at `/hawker-<node>/<machine id>`; only read, emptied and removed here.
`find_hierarchies` reads the layout; `Cgroups` works in all three: v1, v2, and hybrid (v1 with an almost unused v2
beside it).
"""

import os
import select
import signal
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from enum import Enum
from functools import partial
from pathlib import Path

from hawker.errors import NotFound, Unavailable, WrongState
from hawker.host.cgroup_below import machines_below, remove_below
from hawker.host.cgroup_freezer import thaw, unless_gone
from hawker.host.cgroup_restore import Bounds, is_populated, restore_group
from hawker.host.cgroup_usage import CgroupUsage, read_flat, read_usage
from hawker.host.mount import MountEntry
from hawker.ids import MachineId, NodeId
from hawker.value_object import ValueObject

_KILL_TRIES = 20
_LINKS_OF_A_LEAF = 2
_DYING_S = 10.0  # how long the kernel may take to end processes that were sent SIGKILL


class CgroupLayout(Enum):
    V1 = "v1"
    V2 = "v2"
    HYBRID = "hybrid"
    NONE = "none"


class Hierarchies(ValueObject, frozen=True):
    """Where control groups are mounted. `v1` maps a controller's name to its tree; `v2` is the unified tree."""

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
        """Each tree in which the runtime makes a machine's group."""
        if self.v1:
            return sorted(set(self.v1.values()))
        return [self.v2] if self.v2 else []


def find_hierarchies(mounted: Iterable[MountEntry]) -> Hierarchies:
    """From the list of mounts. A v1 tree is known by the controllers among its filesystem options."""
    v1: dict[str, Path] = {}
    v2: Path | None = None
    for mount in mounted:
        if mount.fstype == "cgroup2" and v2 is None:
            v2 = mount.target
        elif mount.fstype == "cgroup":
            v1.update(dict.fromkeys(mount.options.split(","), mount.target))
    return Hierarchies({name: tree for name, tree in v1.items() if name not in ("rw", "ro", "xattr")}, v2)


class Cgroups:
    """The groups of one node. Blocking only in `kill`, and there bounded."""

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
        """Within each tree; what the runtime is told."""
        return f"/{self._parent}/{machine_id}"

    def group(self, controller: str, machine_id: MachineId) -> Path:
        """The machine's group in the tree that has the controller; whether it is there is for the caller to see.
        Raises `NotFound` when no tree has it."""
        return self.tree(controller) / self._parent / machine_id

    def tree(self, controller: str) -> Path:
        """Raises `NotFound` when no tree has it."""
        return self.hierarchies.of(controller)

    def has(self, controller: str) -> bool:
        """In v2 every controller is in the one tree, as is the freezer."""
        return self._unified or controller in self.hierarchies.v1

    def oom_kills(self, machine_id: MachineId) -> int:
        """How many processes the memory limit has killed; 0 when the group is gone."""
        name = "memory.events" if self._unified else "memory.oom_control"
        try:
            return read_flat(self._read(machine_id, "memory", name)).get("oom_kill", 0)
        except NotFound:
            return 0

    def usage(self, machine_id: MachineId) -> CgroupUsage:
        """Raises `NotFound` when the machine has no group."""
        read, optional = partial(self._read, machine_id), partial(self._read_optional, machine_id)
        return read_usage(read, optional, unified=self._unified)

    def knows(self, machine_id: MachineId) -> bool:
        """Whether any tree has a group of the machine, or something of it was listed below the mount of v2."""
        own = f"{self._parent}/{machine_id}"
        there = any(os.path.lexists(f"{tree}/{own}") for tree in self.hierarchies.trees())
        return there or machine_id in self._below

    def list(self) -> list[MachineId]:
        """Every machine with a group in any tree, or with what an older runtime left below the mount of v2."""
        if self._hidden is not None:
            self._below = frozenset(machines_below(self._hidden, self._parent))
        found = set(self._below)
        for tree in self.hierarchies.trees():
            with suppress(FileNotFoundError), os.scandir(tree / self._parent) as entries:
                found.update(entry.name for entry in entries if entry.is_dir())
        return [MachineId(name) for name in sorted(found)]

    def is_lost(self, machine_id: MachineId) -> bool:
        """Whether a running machine is outside of its group, be it that the group was removed."""
        own = Path(self._parent) / machine_id
        return not all(is_populated(tree / own) for tree in self._limiting())

    def gather(self, machine_id: MachineId, bounds: Bounds, pids: Iterable[int], devices: Iterable[str] = ()) -> None:
        """Put these processes of a running machine into a group with these bounds, and rules for more devices than the
        usual ones, made where it is missing. Raises `WrongState` where only the runtime can make the whole of it."""
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
        """End every process of the group and return once they are dead. Raises `Unavailable` when they will not die.
        In v1, whoever is frozen does not even die."""
        if self.has("freezer"):
            thaw(self.group("freezer", machine_id))
        for tree in self.hierarchies.trees():
            for group in _subtree(f"{tree}/{self._parent}/{machine_id}"):
                _kill_all(group, at_once=self._unified)

    def remove(self, machine_id: MachineId) -> None:
        """`kill`, then remove the group from every tree; the node's own parent group too when it was the last. Groups
        without a process, as a pilot that has ended leaves them, are removed at once: the kernel refuses the others."""
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
