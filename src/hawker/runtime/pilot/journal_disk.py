"""The journal and the output ring of a machine with a kernel of its own: one raw disk, written by its guest alone.

It is `run/journal` on the host, bounded from the start, and nothing that is read from it can be trusted.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from hawker.runtime.driver import OutputChunk
from hawker.runtime.pilot.output import SEGMENT_DEFAULT, SEGMENT_MAX, OutputReader, Segment
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import InstanceSpec

JOURNAL_BYTES = 64 << 10
_BLOCK = 4096


def segment_bytes(spec: InstanceSpec) -> int:
    wanted = spec.output_bytes // 2 or SEGMENT_DEFAULT
    return -(-min(wanted, SEGMENT_MAX) // _BLOCK) * _BLOCK


@contextmanager
def journal_disk_file(run: RunDir, spec: InstanceSpec, *, resumed: bool = False) -> Iterator[int]:
    """Open and locked; empty unless it is `resumed`. Space is taken on the host as the guest writes."""
    anew = 0 if resumed else os.O_CREAT | os.O_TRUNC
    fd = os.open(run.journal, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | anew, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        run.forget_pid()
        os.ftruncate(fd, JOURNAL_BYTES + 2 * segment_bytes(spec))
        yield fd
    finally:
        os.close(fd)


def journal_disk_output(
    run: RunDir, reader: OutputReader, now: float, *, after: int = -1, tail: int | None = None
) -> list[OutputChunk]:
    """Read recorded output: see `Driver.output`. Nothing of it is later than `now`, Unix seconds: the guest may say
    so, but it has yet to happen."""
    try:
        size = os.stat(run.journal).st_size
    except FileNotFoundError:
        return []
    length = (size - JOURNAL_BYTES) // 2 // _BLOCK * _BLOCK
    first, second = (
        Segment(run.journal, offset=JOURNAL_BYTES + at * length, length=length, consecutive=True) for at in range(2)
    )
    chunks = reader.read((first, second), after=after, tail=tail)
    return [chunk if chunk.at <= now else replace(chunk, at=now) for chunk in chunks]
