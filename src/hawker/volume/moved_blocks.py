"""The blocks of a volume's file, as two nodes compare and exchange them. A block of zeros is a hole to both: it has no
digest and no bytes.
"""

import ctypes
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hawker.host.changed_blocks import BLOCK_BYTES, BlockRange
from hawker.host.sparse import stored_pieces
from hawker.host.unreadable import FileRange, PatientReader
from hawker.value_object import ValueObject

DIGESTED_BLOCKS = 1024
"""Most stored blocks that are read for one answer: 64 MiB."""

HANDED_BLOCKS = 64
"""Most blocks whose bytes are in one answer: 4 MiB."""

DIGEST_BYTES = 16
_ZEROS = bytes(BLOCK_BYTES)
_PUNCH_AND_KEEP_SIZE = 0x3
_libc = ctypes.CDLL(None, use_errno=True)


class Digests(ValueObject, frozen=True):
    """The digests of the blocks that were asked for and lie before `upto`; those without one are zeros."""

    upto: int
    of: Mapping[int, bytes]


def blocks_in(size_bytes: int) -> int:
    return -(-size_bytes // BLOCK_BYTES)


def union(one: Sequence[BlockRange], other: Sequence[BlockRange]) -> tuple[BlockRange, ...]:
    """The blocks of both, each once, in order."""
    found = list[BlockRange]()
    for span in sorted([*one, *other]):
        if found and span.first <= found[-1].end:
            found[-1] = BlockRange(found[-1].first, max(found[-1].end, span.end) - found[-1].first)
        else:
            found.append(span)
    return tuple(found)


def from_block(spans: Sequence[BlockRange], begin: int) -> tuple[BlockRange, ...]:
    """The part of `spans` that lies at block `begin` or later."""
    later = (BlockRange(max(each.first, begin), each.end - max(each.first, begin)) for each in spans)
    return tuple(each for each in later if each.count > 0)


def groups(spans: Sequence[BlockRange], most: int) -> Iterator[tuple[BlockRange, ...]]:
    """The same blocks in the same order, in groups of at most `most` together."""
    group, room = list[BlockRange](), most
    for span in spans:
        first = span.first
        while first < span.end:
            taken = min(room, span.end - first)
            group.append(BlockRange(first, taken))
            first, room = first + taken, room - taken
            if not room:
                yield tuple(group)
                group, room = [], most
    if group:
        yield tuple(group)


def differing(spans: Sequence[BlockRange], ours: Digests, theirs: Digests) -> tuple[int, set[int]]:
    """The block up to which both sides have answered, and the blocks before it that are not the same."""
    upto = min(ours.upto, theirs.upto)
    either = ours.of.keys() | theirs.of.keys()
    return upto, {block for block in either if block < upto and ours.of.get(block) != theirs.of.get(block)}


def digests_of(
    file: Path, spans: Sequence[BlockRange], lost: Sequence[FileRange] | None = None, most: int = DIGESTED_BLOCKS
) -> Digests:
    """The digests of the first `most` stored blocks among these; `spans` are in order. What is `lost` is zeros."""
    found = dict[int, bytes]()
    if not spans:
        return Digests(0, found)
    read = 0
    with file.open("rb", buffering=0) as opened:
        fd, size = opened.fileno(), os.fstat(opened.fileno()).st_size
        reader = PatientReader(file, fd, lost)
        for block in _stored_blocks(fd, size, spans):
            if read == most:
                return Digests(block, found)
            read += 1
            data = _block(reader, size, block)
            if data != _ZEROS[: len(data)]:
                found[block] = hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()
    return Digests(spans[-1].end, found)


def read_blocks(file: Path, spans: Sequence[BlockRange], lost: Sequence[FileRange] | None = None) -> dict[int, bytes]:
    """The bytes of those of the blocks that are not zeros. What is `lost` is zeros."""
    found = dict[int, bytes]()
    with file.open("rb", buffering=0) as opened:
        fd, size = opened.fileno(), os.fstat(opened.fileno()).st_size
        reader = PatientReader(file, fd, lost)
        for block in _stored_blocks(fd, size, spans):
            data = _block(reader, size, block)
            if data != _ZEROS[: len(data)]:
                found[block] = data
    return found


def write_blocks(file: Path, spans: Sequence[BlockRange], blocks: Mapping[int, bytes]) -> None:
    """Writes these blocks; those without bytes become holes. Raises `OSError`."""
    fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        for span in spans:
            for block in range(span.first, min(span.end, blocks_in(size))):
                data = blocks.get(block)
                if data is None:
                    punch(fd, block * BLOCK_BYTES, BLOCK_BYTES)
                else:
                    write_all(fd, memoryview(data), block * BLOCK_BYTES)
    finally:
        os.close(fd)


def punch(fd: int, offset: int, count: int) -> None:
    """Makes these bytes zeros, which take no room. Raises `OSError`."""
    flags, start, length = ctypes.c_int(_PUNCH_AND_KEEP_SIZE), ctypes.c_int64(offset), ctypes.c_int64(count)
    if _libc.fallocate(fd, flags, start, length) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"fallocate: {os.strerror(code)}")


def write_all(fd: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written


def _stored_blocks(fd: int, size: int, spans: Sequence[BlockRange]) -> Iterator[int]:
    """In order, each once."""
    last = -1
    for span in spans:
        for offset, length in stored_pieces(fd, min(size, span.end * BLOCK_BYTES), span.first * BLOCK_BYTES):
            for block in range(offset // BLOCK_BYTES, (offset + length - 1) // BLOCK_BYTES + 1):
                if block > last:
                    last = block
                    yield block


def _block(reader: PatientReader, size: int, block: int) -> bytes:
    offset = block * BLOCK_BYTES
    return reader.read(offset, min(BLOCK_BYTES, size - offset))
