"""What the superblock of an ext4 filesystem says: pure, from its bytes. On disk, counts are of the last sync."""

import struct
from pathlib import Path

from hawker.value_object import ValueObject

OFFSET, LENGTH = 1024, 1024
_MAGIC = 0xEF53
_LARGEST_LOG_BLOCK = 6  # 64 KiB
_VALID, _ERRORS = 0x1, 0x2


class Superblock(ValueObject, frozen=True):
    """Counts are in blocks; `overhead` is what the filesystem keeps for itself, 0 where it does not say. `whole` unless
    it must be checked before it is mounted: it was seen damaged, or was not unmounted and has no journal."""

    block_size: int
    blocks: int
    blocks_free: int
    blocks_reserved: int
    overhead: int
    whole: bool

    @property
    def bytes(self) -> int:
        return self.blocks * self.block_size


def parse_superblock(raw: bytes) -> Superblock | None:
    """From `LENGTH` bytes; None when it is not one, or one that contradicts itself."""
    if len(raw) < LENGTH or struct.unpack_from("<H", raw, 56)[0] != _MAGIC:
        return None
    (log_block,) = struct.unpack_from("<I", raw, 24)
    (state,) = struct.unpack_from("<H", raw, 58)
    if log_block > _LARGEST_LOG_BLOCK:
        return None
    blocks, reserved, free = (_wide(raw, low, high) for low, high in ((4, 336), (8, 340), (12, 344)))
    if blocks == 0 or free > blocks or reserved > blocks:
        return None
    (overhead,) = struct.unpack_from("<I", raw, 584)
    return Superblock(
        block_size=1024 << log_block,
        blocks=blocks,
        blocks_free=free,
        blocks_reserved=reserved,
        overhead=overhead if overhead < blocks - free else 0,
        whole=bool(state & _VALID) and not state & _ERRORS,
    )


def read_superblock(file: Path) -> Superblock | None:
    """Raises `OSError`, when there is no file for one."""
    with file.open("rb") as stream:
        stream.seek(OFFSET)
        return parse_superblock(stream.read(LENGTH))


def _wide(raw: bytes, low: int, high: int) -> int:
    low_half: int = struct.unpack_from("<I", raw, low)[0]
    high_half: int = struct.unpack_from("<I", raw, high)[0]
    return low_half | high_half << 32
