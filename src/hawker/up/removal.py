"""The end of a node on its host: its daemon, and then everything that bears its name, until nothing does.

Every step looks at what is there now and may be done again, so a removal that was killed is finished by the next one.
The data directory goes last, and in it the file that says which node it was.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from hawker.clock import Clock
from hawker.errors import CannotStart
from hawker.fair.threads import Pool, in_thread
from hawker.host.apparmor import AppArmor
from hawker.host.block import detach_loop
from hawker.host.cgroup import thaw
from hawker.host.changed_blocks import remove_ring
from hawker.host.floating import release_all
from hawker.host.luks import Luks
from hawker.host.mount import mount_holders, unmount
from hawker.host.network import NodeNetwork
from hawker.host.residue import Residue, host
from hawker.host.rmtree import remove_tree
from hawker.ids import NodeId
from hawker.image.block_image import mark_of
from hawker.place import Place

STOP_S = 30.0
_ROUNDS = 120
_ROUNDS_OF_LOOPS = 8  # once nothing but loop devices is left
_PAUSE_S = 0.25
_MARK = "removing"
_EDGE = frozenset({"dns", "edge", "edge-process", "presence"})
_PROC = Path("/proc")
_UNITS = Path("/etc/systemd/system")

Say = Callable[[str], None]


class Removal:
    """The removal of the node in `place`. Raises `CannotStart` where there is none."""

    def __init__(self, place: Place, clock: Clock, say: Say) -> None:
        self._place = place
        self._clock = clock
        self._say = say
        self.node = self._who()

    def _who(self) -> NodeId:
        """Also after a removal that got as far as the file that says it."""
        begun = Place(self._place.root)
        begun.identity = self._place.root / _MARK
        found = self._place.remembered() or begun.remembered()
        if found is None:
            raise CannotStart(f"there is no node in {self._place.root}: name its data directory with --data-dir")
        return found

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks, one of which everything of this node on the host bears."""
        short = self.node[:4]
        staged = mark_of(self._place.images / "staging")
        return (
            f"{self._place.root}/",
            f"\0{self._place.root}\0",
            self.node,
            f"hw{short}",
            f"hawker-{short}",
            f"hawker_{short}",
            staged,
        )

    async def run(self) -> None:
        """Removes the node. Raises `CannotStart` when the daemon does not end, or something cannot be removed."""
        await self.stop_daemon()
        await in_thread(Pool.HOST, release_all, self._place.floating)
        with self._place.held():
            await in_thread(Pool.HOST, self._begin)
            await self._clear()
            await in_thread(Pool.HOST, self._remove_files)
            await self._let_go()
            await in_thread(Pool.HOST, self._forget)

    async def stop_daemon(self) -> None:
        """Stops the daemon by its service manager, if it has one; else by a signal."""
        holder = await in_thread(Pool.HOST, _holder_of, self._place.root)
        if holder is None:
            return
        parent = _parent_of(holder)
        main = parent if _is_template(parent, holder) else holder
        unit = await in_thread(Pool.HOST, unit_of, main)
        if unit is not None:
            self._say(f"stopping and disabling {unit}")
            await in_thread(Pool.HOST, _end_unit, unit)
        else:
            self._say(f"stopping the daemon, process {holder}")
            os.kill(main, signal.SIGTERM)
        deadline = self._clock.monotonic() + STOP_S
        while await in_thread(Pool.HOST, _holder_of, self._place.root) is not None:
            if self._clock.monotonic() > deadline:
                raise CannotStart(f"the daemon, process {holder}, does not end: end it, and repeat the command")
            await self._clock.sleep(_PAUSE_S)

    def _begin(self) -> None:
        (self._place.root / _MARK).write_text(f"{self.node}\n")

    async def _clear(self) -> None:
        """All but the files, in rounds: what ends lets go of something else. Loop devices may stay: another program's
        mount namespace, made while a disk was mounted, holds it until the mount point's directory is removed."""
        network, luks = NodeNetwork(self.node, self._place.networks), Luks()
        for count in range(_ROUNDS):
            left = await in_thread(Pool.HOST, self.left)
            if not left or (count >= _ROUNDS_OF_LOOPS and all(trace.kind == "loop" for trace in left)):
                break
            for kind, act in _ACTS:
                await in_thread(Pool.HOST, _each, [trace for trace in left if trace.kind == kind], act)
            await in_thread(Pool.HOST, self._unmount_all)
            for name in luks.opened(f"hawker-{self.node}-"):
                await luks.close(name)
            if os.geteuid() == 0:
                await network.remove_node()
            await self._clock.sleep(_PAUSE_S)
        left = [trace for trace in await in_thread(Pool.HOST, self.left) if trace.kind != "loop"]
        if left:
            what = ", ".join(map(str, left[:5]))
            raise CannotStart(f"{len(left)} things of node {self.node} stay on the host: {what}; repeat the command")
        await in_thread(Pool.HOST, AppArmor(self.node).remove)

    async def _let_go(self) -> None:
        """Until no device has one of the files that are gone."""
        deadline = self._clock.monotonic() + STOP_S
        while left := await in_thread(Pool.HOST, self.left):
            await in_thread(Pool.HOST, _each, [trace for trace in left if trace.kind == "loop"], _detach)
            if self._clock.monotonic() > deadline:
                devices = [Path(f"/dev/{trace.name.split()[0]}") for trace in left if trace.kind == "loop"]
                holders = {str(each) for found in mount_holders(devices).values() for each in found}
                by = f", held by {', '.join(sorted(holders))}" if holders else ""
                what = ", ".join(map(str, left[:5]))
                raise CannotStart(
                    f"{len(left)} things of node {self.node} stay on the host: {what}{by}; repeat the command"
                )
            await self._clock.sleep(_PAUSE_S)

    def left(self) -> list[Residue]:
        """The things of this node that are there outside its directory; the daemon's own process was ended before."""
        found = (trace for trace in host() if any(mark in trace.bears for mark in self.marks))
        return sorted(trace for trace in found if self._is_ours(trace))

    def _is_ours(self, trace: Residue) -> bool:
        """A mark may stand in another's words: what is ended or unmounted must be below the directory, or in a control
        group of this node."""
        match trace.kind:
            case "process":
                below = f"{self._place.root}/machines/" in trace.bears or self._is_edge(trace)
                return below or f"hawker-{self.node[:4]}" in trace.bears
            case "mount":
                return trace.name.startswith(f"{self._place.root}/")
            case "loop":
                return trace.bears.startswith(f"{self._place.root}/")
            case _:
                return True

    def _is_edge(self, trace: Residue) -> bool:
        """One of the processes beside the daemon, which outlive it."""
        words = trace.bears.split("\0")
        return not _EDGE.isdisjoint(words[:5]) and str(self._place.root) in words

    def _unmount_all(self) -> None:
        """The deepest first; the network namespaces are mounts as well."""
        targets = [Path(trace.name) for trace in self.left() if trace.kind == "mount"]
        for target in sorted(targets, key=lambda each: len(each.parts), reverse=True):
            with suppress(OSError):
                unmount(target)

    def _remove_files(self) -> None:
        """All but who the node was, which stays until all else is gone."""
        root = self._place.root
        for entry in sorted(os.scandir(root), key=lambda each: each.name):
            if entry.name in (_MARK,):
                continue
            if entry.is_dir(follow_symlinks=False):
                remove_tree(Path(entry.path))
            else:
                os.unlink(entry.path)

    def _forget(self) -> None:
        """The directory itself stays where it is a mount."""
        os.unlink(self._place.root / _MARK)
        with suppress(OSError):
            self._place.root.rmdir()


def _each(traces: Iterable[Residue], act: Callable[[Residue], None]) -> None:
    """What does not go now may go in the next round."""
    for trace in traces:
        with suppress(OSError):
            act(trace)


def _end(trace: Residue) -> None:
    os.kill(int(trace.name.split()[0]), signal.SIGKILL)


def _detach(trace: Residue) -> None:
    detach_loop(f"/dev/{trace.name.split()[0]}")


def _remove_group(trace: Residue) -> None:
    """Who is frozen, as a suspended machine is, does not even die."""
    folder = Path(trace.name)
    for group, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            thaw(Path(group))
        with suppress(OSError):
            for pid in (Path(group) / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        with suppress(OSError):
            os.rmdir(group)


def _remove_tree(trace: Residue) -> None:
    remove_tree(Path(trace.name))


def _remove_trace(trace: Residue) -> None:
    remove_ring(trace.name)


_ACTS = (
    ("process", _end),
    ("cgroup", _remove_group),
    ("loop", _detach),
    ("staged tree", _remove_tree),
    ("trace ring", _remove_trace),
)
"""Interfaces, packet tables and namespaces are removed by the network itself."""


def _holder_of(directory: Path) -> int | None:
    """The process that has the data directory: the kernel lists locks by device and inode (proc_locks(5))."""
    try:
        there = directory.stat()
    except FileNotFoundError:
        return None
    wanted = f"{os.major(there.st_dev):02x}:{os.minor(there.st_dev):02x}:{there.st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if "FLOCK" in words and wanted in words and "->" not in words:
            pid = int(words[words.index(wanted) - 1])
            if pid != os.getpid():
                return pid
    return None


def unit_of(pid: int, proc: Path = _PROC) -> str | None:
    """The systemd service that is there for this process. What a shell, cron or an agent has begun runs in theirs."""
    with suppress(OSError):
        for line in (proc / str(pid) / "cgroup").read_text().splitlines():
            name = line.rpartition("/")[2]
            if name.endswith(".service") and "/system.slice/" in line and _main_process(name) == str(pid):
                return name
    return None


def _main_process(unit: str) -> str:
    """Its id; another text where there is none. Raises `OSError` where systemd is not."""
    command = ["systemctl", "show", "--property=MainPID", "--value", unit]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.strip()


def _end_unit(unit: str) -> None:
    """With its socket; a unit that an operator put there is removed."""
    units = [unit, f"{unit.removesuffix('.service')}.socket"]
    for each in units:
        subprocess.run(["systemctl", "disable", "--now", each], capture_output=True, check=False, timeout=60)
    for each in units:
        if (_UNITS / each).is_file() and "hawker up" in (_UNITS / unit).read_text():
            (_UNITS / each).unlink()
    subprocess.run(["systemctl", "daemon-reload"], capture_output=True, check=False, timeout=60)


def _parent_of(pid: int) -> int:
    with suppress(OSError):
        return int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _is_template(parent: int, daemon: int) -> bool:
    """Whether daemons are forked from it: it has the same command line."""
    return parent > 1 and list(_words(parent)) == list(_words(daemon))


def _words(pid: int) -> Iterator[bytes]:
    with suppress(OSError):
        yield from (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
