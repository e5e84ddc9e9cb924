"""Unpacking LZ4 as kernels are packed with it: the legacy frame (lz4_Frame_format.md) of blocks (lz4_Block_format.md).

Plain Python, some 35 MB/s: enough for a kernel that is unpacked once, when it is imported.
"""

MAGIC = b"\x02\x21\x4c\x18"

_BLOCK = 8 << 20  # what a block unpacks to at the most
_LEAST_MATCH = 4


def unpack(data: bytes, limit: int) -> bytes:
    """All blocks up to the end, or to what is no block: the kernel's build appends the size. Raises `ValueError`."""
    if not data.startswith(MAGIC):
        raise ValueError("not a legacy LZ4 frame")
    out = bytearray()
    at = len(MAGIC)
    while at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        if size == 0 or at + 4 + size > len(data):
            break
        out += _block(data[at + 4 : at + 4 + size])
        at += 4 + size
        if len(out) > limit:
            raise ValueError(f"it unpacks to more than {limit} bytes")
    return bytes(out)


def _block(data: bytes) -> bytearray:
    out = bytearray()
    at, end = 0, len(data)
    try:
        while True:
            token = data[at]
            at += 1
            literals = token >> 4
            if literals == 15:
                literals, at = _longer(data, at, literals)
            if at + literals > end:
                raise ValueError("LZ4 literals run past the block")
            out += data[at : at + literals]
            at += literals
            if at == end:
                return out
            offset = data[at] | data[at + 1] << 8
            at += 2
            length = token & 15
            if length == 15:
                length, at = _longer(data, at, length)
            _repeat(out, offset, length + _LEAST_MATCH)
    except IndexError as error:
        raise ValueError("an LZ4 block that is cut off") from error


def _longer(data: bytes, at: int, length: int) -> tuple[int, int]:
    """A length goes on for as long as its bytes are 255; no longer than a block is."""
    while True:
        more = data[at]
        at += 1
        length += more
        if more != 255:
            return length, at
        if length > _BLOCK:
            raise ValueError("an LZ4 length beyond its block")


def _repeat(out: bytearray, offset: int, length: int) -> None:
    """A match may reach into what it writes: then it repeats itself."""
    start = len(out) - offset
    if offset == 0 or start < 0 or len(out) + length > _BLOCK:
        raise ValueError("an LZ4 match outside its block")
    if offset >= length:
        out += out[start : start + length]
    else:
        piece = out[start:]
        out += (piece * (length // offset + 1))[:length]
