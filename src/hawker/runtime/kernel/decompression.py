"""Decompression of kernels and modules, by their first bytes: gzip, xz, LZMA and zstd in process, LZ4 by `lz4`.

Nothing is unpacked beyond its limit, and what follows the packed data is passed over: a kernel's build appends a size.
"""

import lzma
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Mapping

import zstandard

from hawker.runtime.kernel.tools import find_tool

_CHUNK = 1 << 10  # of zstd: at its worst 32 MiB unpacked
_WINDOW = 256 << 20  # of memory to unpack with; the largest that kernels are packed for needs half of it
_GZIP_WINDOW = 31  # zlib's way to say "with a gzip header"


def unpacked(data: bytes, limit: int) -> bytes:
    """What is not packed in a known way comes back as it is. Raises `ValueError` for damage and above `limit` bytes,
    `MissingTool`."""
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


def _lz4(data: bytes, limit: int) -> bytes:
    """The legacy frame, as kernels are packed; no library for Python reads it."""
    with tempfile.TemporaryFile() as packed:
        packed.write(data[: _legacy_frame_size(data)])
        packed.seek(0)
        command = [find_tool("lz4"), "-dcq"]
        with subprocess.Popen(command, stdin=packed, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as unpacking:
            assert unpacking.stdout is not None, "it was asked for"
            out = unpacking.stdout.read(limit + 1)
            if len(out) > limit:
                unpacking.kill()
    return _whole(out, unpacking.returncode == 0, limit)


def _legacy_frame_size(data: bytes) -> int:
    """Up to its last block, each of which says its size: `lz4` refuses what follows."""
    at = 4
    while (size := int.from_bytes(data[at : at + 4], "little")) and at + 4 + size <= len(data):
        at += 4 + size
    return at


def _whole(out: bytes, ended: bool, limit: int) -> bytes:
    if len(out) > limit:
        raise ValueError(f"it unpacks to more than {limit} bytes")
    if not ended:
        raise ValueError("packed data that is damaged or cut off")
    return out


_WAYS: Mapping[bytes, Callable[[bytes, int], bytes]] = {
    b"\x1f\x8b\x08": _gzip,
    b"\xfd7zXZ\0": _lzma,
    b"\x5d\0\0": _lzma,
    b"\x28\xb5\x2f\xfd": _zstd,
    b"\x02\x21\x4c\x18": _lz4,
}
