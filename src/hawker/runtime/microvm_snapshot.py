"""The host's record of a machine's snapshot, `RunDir.snapshot`: what it is of, and enough to see that it is still
whole.

The memory itself is in the VMM's own directory, in `SAVED`; the record is not, so no VMM can make its machine look
suspended. Of each file of the snapshot its size and a checksum of its beginning and end are checked, which finds what
was cut, emptied, exchanged or belongs to another snapshot, at once and whatever its size. A change in the midst of a
file is not found; whoever could make one, with the rights of root or of the VMM's user, owns the machine's memory
anyway.
"""

import os
import shutil
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from hawker.errors import SnapshotLost
from hawker.runtime.microvm_plan import MicroVMPlan
from hawker.runtime.pilot.rundir import RunDir

SAVED = "snapshot"
"""Its directory, below the VMM's."""

_SAMPLE = 64 << 10


class SavedFile(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size: int
    checksum: int  # CRC-32 of its first and its last 64 KiB


class MicroVMSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """`program` is the VMM that wrote it, by name and version; `plan` the machine's hardware, to which it belongs;
    `available_mib` how much of its memory the guest could still use."""

    program: str
    plan: MicroVMPlan
    files: tuple[SavedFile, ...]
    available_mib: int


def saved_directory(run: RunDir) -> Path:
    return run.vmm / SAVED


def make_room(run: RunDir, uid: int) -> None:
    """An empty directory for a snapshot, the VMM's to write to; what was there is gone."""
    drop_files(run)
    saved_directory(run).mkdir(mode=0o700)
    os.chown(saved_directory(run), uid, uid, follow_symlinks=False)


def describe(run: RunDir) -> tuple[SavedFile, ...]:
    """Every file that a VMM has saved, made durable. Raises `SnapshotLost`."""
    with _opened(run) as place:
        names = sorted(os.listdir(place))
        found = tuple(_look(place, name, flush=True) for name in names)
        os.fsync(place)
    return found


def publish(run: RunDir, snapshot: MicroVMSnapshot) -> None:
    """Write the record: from here on the machine is suspended, also after a crash of the host."""
    draft = run.snapshot.with_name(run.snapshot.name + ".new")
    with draft.open("wb") as file:
        file.write(msgspec.json.encode(snapshot))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(run.snapshot)
    _flush(run.path)


def read(run: RunDir) -> MicroVMSnapshot:
    """Raises `SnapshotLost`."""
    try:
        return msgspec.json.decode(run.snapshot.read_bytes(), type=MicroVMSnapshot)
    except (OSError, msgspec.DecodeError) as error:
        raise SnapshotLost("the record of the machine's snapshot cannot be read") from error


def refuse_unusable(run: RunDir, snapshot: MicroVMSnapshot, program: str) -> None:
    """Raises `SnapshotLost` with what has changed since it was made."""
    if snapshot.program != program:
        raise SnapshotLost(f"the machine's snapshot was made by {snapshot.program}, and this is {program}")
    for shown in snapshot.plan.shown:
        if not Path(shown.source).exists():
            raise SnapshotLost(f"{shown.source} is gone, with which the machine's snapshot was made")
    with _opened(run) as place:
        for file in snapshot.files:
            if _look(place, file.name, flush=False) != file:
                raise SnapshotLost(f"the machine's snapshot is torn: {file.name} is not as it was written")


def forget(run: RunDir) -> None:
    """Remove the record: from here on the machine is not suspended, also after a crash of the host."""
    run.snapshot.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        _flush(run.path)


def drop_files(run: RunDir) -> None:
    """The memory, of a snapshot that is not published; also half of one."""
    place = saved_directory(run)
    if place.is_symlink() or place.is_file():
        place.unlink()
    else:
        shutil.rmtree(place, ignore_errors=True)


def _look(place: int, name: str, *, flush: bool) -> SavedFile:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
    except OSError as error:
        raise SnapshotLost(f"the machine's snapshot is torn: {name}: {error.strerror}") from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise SnapshotLost(f"the machine's snapshot was tampered with: {name} is not a file")
        if flush:
            os.fsync(fd)
        sample = os.pread(fd, _SAMPLE, 0) + os.pread(fd, _SAMPLE, max(0, found.st_size - _SAMPLE))
        return SavedFile(name=name, size=found.st_size, checksum=zlib.crc32(sample))
    finally:
        os.close(fd)


@contextmanager
def _opened(run: RunDir) -> Iterator[int]:
    try:
        place = os.open(saved_directory(run), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise SnapshotLost(f"the machine's snapshot is gone: {error.strerror}") from error
    try:
        yield place
    finally:
        os.close(place)


def _flush(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
