"""Unpacking what kernels and modules are packed with, known by its first bytes: gzip, xz, LZMA, zstd, LZ4.

Nothing is unpacked beyond its limit, and what follows the packed data is passed over: a kernel's build appends a size.
"""

import lzma
import zlib
from collections.abc import Callable, Mapping

import zstandard

from hawker.runtime.kernel import lz4

_CHUNK = 1 << 10  # of zstd: at its worst 32 MiB unpacked
_WINDOW = 256 << 20  # of memory to unpack with; the largest that kernels are packed for needs half of it
_GZIP_WINDOW = 31  # zlib's way to say "with a gzip header"


def unpacked(data: bytes, limit: int) -> bytes:
    """What is not packed in a known way comes back as it is. Raises `ValueError` for damage and above `limit` bytes."""
    for magic, unpack in _WAYS.items():
        if data.startswith(magic):
            return unpack(data, limit)
    return data


def is_packed(data: bytes) -> bool:
    return data.startswith(tuple(_WAYS))


def _gzip(data: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        out = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise ValueError(f"damaged gzip data: {error}") from error
    return _whole(out, stream.eof, limit)


def _lzma(data: bytes, limit: int) -> bytes:
    stream = lzma.LZMADecompressor(memlimit=_WINDOW)
    try:
        out = stream.decompress(data, limit + 1)
    except lzma.LZMAError as error:
        raise ValueError(f"damaged xz data: {error}") from error
    return _whole(out, stream.eof, limit)


def _zstd(data: bytes, limit: int) -> bytes:
    stream = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
    out = bytearray()
    try:
        for at in range(0, len(data), _CHUNK):
            out += stream.decompress(data[at : at + _CHUNK])
            if stream.eof or len(out) > limit:
                break
    except zstandard.ZstdError as error:
        raise ValueError(f"damaged zstd data: {error}") from error
    return _whole(bytes(out), stream.eof, limit)


def _whole(out: bytes, ended: bool, limit: int) -> bytes:
    if len(out) > limit:
        raise ValueError(f"it unpacks to more than {limit} bytes")
    if not ended:
        raise ValueError("packed data that is cut off")
    return out


_WAYS: Mapping[bytes, Callable[[bytes, int], bytes]] = {
    b"\x1f\x8b\x08": _gzip,
    b"\xfd7zXZ\0": _lzma,
    b"\x5d\0\0": _lzma,
    b"\x28\xb5\x2f\xfd": _zstd,
    lz4.MAGIC: lz4.unpack,
}
