"""Changed block tracking: which blocks of a loop device were written to, as the kernel's trace of completed requests
says. A ring of the trace's own, without a mount that others see; it bears the node's name, and ends with `close`, or
with `close_left_over` after a daemon that was killed.

Invariant: rings are made and removed by one process of the host at a time, which holds the lock of their directory: a
kernel (6.18) that is told to remove a ring while another process sets its options follows a null pointer, and has no
trace any more until its next boot.

Invariant: a write is told by its end. So whoever asks what changed and then reads has each block as it is, or is told
of it the next time. What the ring could not hold makes the tracker `lost`, and then it says nothing of any block.
"""

import errno
import fcntl
import os
import re
import threading
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

from hawker.host.mount import detached_mount
from hawker.value_object import ValueObject

BLOCK_BYTES = 64 << 10
_MOST = 1 << 18
"""The most changed blocks that are remembered, 16 GiB of them; with more the tracker is `lost`."""

SECTOR_BYTES = 512
_SECTORS = BLOCK_BYTES // SECTOR_BYTES
_RING_KIB = 4096  # for each processor: some 80,000 requests between two times that it is emptied
_NAME = "hawker-"
_EVENT = "events/block/block_rq_complete"
_FILTER = 'dev == {device} && nr_sector != 0 && !(rwbs ~ "*R*")'
_LINE = re.compile(rb"block_rq_complete: \d+,\d+ \S+ \(\) (\d+) \+ (\d+) ")
_PLAIN = {"context-info": "0", "overwrite": "0"}  # no names of processes: tenants choose them
_READ = 1 << 16
_LOOKS, _LOOK_S = 1000, 0.01  # whoever holds the lock for longer hangs in the kernel
_WRITTEN, _DISCARDED = 6, 13  # of the fields of a device's `stat`, in sectors
_UNKNOWN = frozenset(
    {errno.ENODEV, errno.ENOSYS, errno.EPERM, errno.EACCES, errno.ENOENT, errno.EINVAL, errno.EBUSY, errno.ENOMEM}
    | {errno.EWOULDBLOCK}
)


class BlockRange(ValueObject, frozen=True, order=True):
    """A range of blocks of `BLOCK_BYTES`, from the block `first` on."""

    first: int
    """The number of the block, from 0."""
    count: int
    """The number of blocks, 1 or more."""

    @property
    def end(self) -> int:
        return self.first + self.count


def spans_of(blocks: Iterable[int]) -> tuple[BlockRange, ...]:
    """The blocks as ranges, in order, as few as there can be."""
    found = list[BlockRange]()
    for block in sorted(blocks):
        if found and found[-1].end == block:
            found[-1] = BlockRange(found[-1].first, found[-1].count + 1)
        else:
            found.append(BlockRange(block, 1))
    return tuple(found)


def blocks_of(sector: int, count: int) -> range:
    """The blocks that have any of these `count` sectors of `SECTOR_BYTES`."""
    return range(sector // _SECTORS, (sector + count - 1) // _SECTORS + 1)


class ChangedBlocks:
    """The changed blocks of one file. `device` is the loop device over `file`. A mark is a moment: `since` tells what
    was seen to change since then."""

    def __init__(self, root: int, ring: Path, device: str, file: Path) -> None:
        self._root = root
        self._ring = ring
        self._file = file
        self._device = Path("/sys/block") / Path(device).name
        self._rest = b""
        self._seen: dict[int, int] = {}
        self._mark = 0
        self._sectors = 0
        self._taking = threading.Lock()
        self._closed = False
        self.lost = False
        self._before = self._counted() or 0
        self._pipe = os.open(ring / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def since(self, mark: int) -> tuple[int, tuple[BlockRange, ...]] | None:
        """A mark of now, and the blocks that changed since the given mark, 0 for all that changed since tracking began;
        None once the tracker is `lost` or closed."""
        with self._taking:
            if self._closed:
                return None
            self._settle()
            counted = self._counted()
            self._drain()
            if counted is not None and self._sectors < counted - self._before:
                self.lost = True  # the device has written more than the trace told
            self._look()
            if self.lost:
                self._seen.clear()
                return None
            changed = spans_of(block for block, when in self._seen.items() if when >= mark)
            self._mark += 1
            return self._mark, changed

    def empty(self) -> bool:
        """Empty the kernel's ring, which is small, and remember what it tells. False once the tracker is `lost`."""
        with self._taking:
            if not self._closed:
                self._drain()
            return not self.lost

    def close(self) -> None:
        with self._taking:
            self._closed = True
            os.close(self._pipe)
            try:
                with _turn(self._root):
                    _remove(self._ring)
            finally:
                os.close(self._root)

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            while data := os.read(self._pipe, _READ):
                whole, _, rest = (self._rest + data).rpartition(b"\n")
                self._rest = rest
                for line in whole.splitlines():
                    self._note(line)
        self.lost = self.lost or len(self._seen) > _MOST or _dropped(self._ring)

    def _note(self, line: bytes) -> None:
        found = _LINE.match(line)
        if found is None:
            self.lost = True
            return
        first, count = int(found[1]), int(found[2])
        self._sectors += count
        self._see(self._written(first, count))

    def _see(self, changed: Iterable[int]) -> None:
        for block in changed:
            self._seen[block] = self._mark
        if len(self._seen) > _MOST:
            self._seen.clear()
            self.lost = True

    def _settle(self) -> None:
        """Before the trace is read."""

    def _look(self) -> None:
        """At what it does not tell, after it was read."""

    def _written(self, sector: int, count: int) -> Iterable[int]:
        """The blocks of the file that are written with these sectors of the device."""
        return blocks_of(sector, count)

    def _is_over(self) -> bool:
        """Whether the file is on the device still."""
        return Path((self._device / "loop" / "backing_file").read_text().strip()) == self._file

    def _counted(self) -> int | None:
        """What the device says it has written and discarded, in sectors; None once it is another file's."""
        try:
            if not self._is_over():
                return None
            fields = (self._device / "stat").read_text().split()
            return int(fields[_WRITTEN]) + int(fields[_DISCARDED])
        except (OSError, ValueError, IndexError):
            return None


def track(
    device: str,
    file: Path,
    node: str,
    name: str,
    begin: Callable[[int, Path, str, Path], ChangedBlocks] = ChangedBlocks,
) -> ChangedBlocks | None:
    """Begin to track the changed blocks of `file`, from now on. None where the kernel has no trace of block requests,
    or does not let us have one. `name` is of one volume of this node."""
    try:
        root = detached_mount("tracefs", "tracefs", options={})
    except OSError as error:
        if error.errno in _UNKNOWN:
            return None
        raise
    ring = _rings(root) / f"{_NAME}{node}-{name}"
    try:
        with _turn(root):
            _make(ring, device)
            return begin(root, ring, device, file)
    except OSError as error:
        os.close(root)
        if error.errno in _UNKNOWN:
            return None
        raise


def close_left_over(node: str, but: Collection[str]) -> list[str]:
    """Remove the rings of this node that a daemon left when it was killed, except those named in `but`. Returns the
    names of the removed rings."""
    names = {ring: ring.removeprefix(f"{_NAME}{node}-") for ring in rings()}
    left = [ring for ring, name in names.items() if name not in (ring, *but)]
    for ring in left:
        remove_ring(ring)
    return sorted(names[ring] for ring in left)


def rings() -> list[str]:
    """The names of the rings of all nodes of this host; none where they cannot be seen."""
    try:
        root = detached_mount("tracefs", "tracefs", options={})
    except OSError:
        return []
    try:
        return sorted(each.name for each in _rings(root).iterdir() if each.name.startswith(_NAME))
    except OSError:
        return []
    finally:
        os.close(root)


def remove_ring(ring: str) -> None:
    """Remove a ring that `rings` names. Raises `OSError`."""
    root = detached_mount("tracefs", "tracefs", options={})
    try:
        with _turn(root):
            _remove(_rings(root) / ring)
    finally:
        os.close(root)


def _rings(root: int) -> Path:
    return Path(f"/proc/self/fd/{root}/instances")


@contextmanager
def _turn(root: int) -> Generator[None]:
    """Raises `BlockingIOError` where it does not come."""
    rings = os.open(_rings(root), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for _ in range(_LOOKS):
            try:
                fcntl.flock(rings, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                threading.Event().wait(_LOOK_S)
        else:
            fcntl.flock(rings, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(rings)


def _make(ring: Path, device: str) -> None:
    _remove(ring)
    ring.mkdir()
    try:
        for option, value in _PLAIN.items():
            (ring / "options" / option).write_text(value)
        (ring / "buffer_size_kb").write_text(str(_RING_KIB))
        number = os.stat(device).st_rdev
        kernel_number = os.major(number) << 20 | os.minor(number)
        (ring / _EVENT / "filter").write_text(_FILTER.format(device=kernel_number))
        (ring / _EVENT / "enable").write_text("1")
    except OSError:
        with suppress(OSError):
            _remove(ring)
        raise


def _remove(ring: Path) -> None:
    with suppress(FileNotFoundError):
        (ring / _EVENT / "enable").write_text("0")
        ring.rmdir()


def _dropped(ring: Path) -> bool:
    """Whether a processor's ring was full once."""
    counts = ("overrun:", "commit overrun:", "dropped events:")
    for stats in ring.glob("per_cpu/cpu*/stats"):
        if any(line.startswith(counts) and int(line.rpartition(":")[2]) for line in stats.read_text().splitlines()):
            return True
    return False
