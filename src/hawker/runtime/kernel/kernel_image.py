"""Kernel images: what a file is, which release, and the vmlinux in a bzImage (the kernel's arch/x86/boot.rst).

On arm64 the image is what every VMM boots (arch/arm64/booting.rst), packed with gzip or not.
"""

import lzma
import re
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Mapping

import zstandard

from hawker.runtime.kernel.tools import find_tool
from hawker.value_object import ValueObject

_CHUNK = 1 << 10  # of zstd: at its worst 32 MiB unpacked
_WINDOW = 256 << 20  # of memory to unpack with; the largest that kernels are packed for needs half of it
_GZIP_WINDOW = 31  # zlib's way to say "with a gzip header"


# Decompression of kernels and modules, by their first bytes: gzip, xz, LZMA and zstd in process, LZ4 by `lz4`.
# Nothing is unpacked beyond its limit, and what follows the packed data is passed over: a kernel's build appends a
# size.


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


MAX_BYTES = 512 << 20
RELEASE = re.compile(r"[0-9][A-Za-z0-9._+~-]{0,63}")

_SECTOR = 512
_BOOT_MAGIC_AT, _BOOT_MAGIC = 0x202, b"HdrS"
_SETUP_SECTORS_AT, _PROTOCOL_AT, _VERSION_AT, _PAYLOAD_AT = 0x1F1, 0x206, 0x20E, 0x248
_LEAST_HEADER = 0x260
_LEAST_PROTOCOL = 0x0208  # the first that says where the payload is
_ARM64_AT, _ARM64_MAGIC = 56, b"ARMd"
_BANNER = re.compile(rb"Linux version (\S{1,64}) ")
_PVH_NOTE = re.compile(rb"\x04\0\0\0[\x04\x08]\0\0\0\x12\0\0\0Xen\0")  # where PVH enters: XEN_ELFNOTE_PHYS32_ENTRY
_ELF_MAGIC = b"\x7fELF\x02\x01\x01"  # of 64 bits, little-endian
_ELF_HEADER, _SEGMENT = struct.Struct("<32xQ14xHH6x"), struct.Struct("<I4xQ16xQ16x")
_LOADED = 1


class KernelImage(ValueObject, frozen=True):
    """`boot` is the file as a boot loader takes it, `direct` the one that VMMs without a boot loader do. They may be
    the same. `pvh`: it can be entered as Cloud Hypervisor does, on x86."""

    release: str
    """As `uname -r` says it in a machine; modules must be of the same."""
    boot: bytes
    direct: bytes
    pvh: bool


def read_image(data: bytes) -> KernelImage:
    """A bzImage, a vmlinux, or an arm64 image. Raises `ValueError` that says what is wrong with it."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
    if data[_BOOT_MAGIC_AT : _BOOT_MAGIC_AT + 4] == _BOOT_MAGIC:
        return _bzimage(data)
    plain = unpacked(data, MAX_BYTES) if is_packed(data) else data
    if plain.startswith(_ELF_MAGIC):
        return _vmlinux(plain)
    if plain[_ARM64_AT : _ARM64_AT + 4] == _ARM64_MAGIC:
        return KernelImage(release=_banner(plain), boot=plain, direct=plain, pvh=False)
    raise ValueError("not a kernel: neither a bzImage, nor a vmlinux, nor an arm64 image")


def _bzimage(data: bytes) -> KernelImage:
    protocol = _number(data, _PROTOCOL_AT, 2)
    if len(data) < _LEAST_HEADER or protocol < _LEAST_PROTOCOL:
        raise ValueError("a bzImage that is too old or cut off")
    setup = (_number(data, _SETUP_SECTORS_AT, 1) or 4) + 1
    start = setup * _SECTOR + _number(data, _PAYLOAD_AT, 4)
    packed = data[start : start + _number(data, _PAYLOAD_AT + 4, 4)]
    if len(packed) < _number(data, _PAYLOAD_AT + 4, 4) or not (is_packed(packed) or packed.startswith(_ELF_MAGIC)):
        raise ValueError("a bzImage that is cut off, or packed in an unknown way")
    direct = unpacked(packed, MAX_BYTES)
    inner = _vmlinux(direct)
    release = _bzimage_release(data)
    if release != inner.release:
        raise ValueError(f"a bzImage that says it is {release}, and holds {inner.release}")
    return KernelImage(release=release, boot=data, direct=direct, pvh=inner.pvh)


def _bzimage_release(data: bytes) -> str:
    at = _number(data, _VERSION_AT, 2) + _SECTOR
    text = data[at : at + 256].split(b"\0")[0].split(b" ")[0].decode("ascii", "replace")
    return _checked(text)


def _vmlinux(data: bytes) -> KernelImage:
    _check_whole(data)
    return KernelImage(release=_banner(data), boot=data, direct=data, pvh=_PVH_NOTE.search(data) is not None)


def _check_whole(data: bytes) -> None:
    """All that an ELF file has loaded is in it: one that is cut off would be found out only by a machine."""
    if not data.startswith(_ELF_MAGIC) or len(data) < _ELF_HEADER.size:
        raise ValueError("not an ELF file of 64 bits")
    table_at, size, count = _ELF_HEADER.unpack_from(data)
    table = data[table_at : table_at + size * count]
    if size != _SEGMENT.size or len(table) != size * count:
        raise ValueError("an ELF file that is cut off")
    loaded = [(at, length) for kind, at, length in _SEGMENT.iter_unpack(table) if kind == _LOADED]
    if not loaded:
        raise ValueError("an ELF file with nothing to load")
    if max(at + length for at, length in loaded) > len(data):
        raise ValueError("an ELF file that is cut off")


def _banner(data: bytes) -> str:
    """The first words that it says on its console."""
    found = _BANNER.search(data)
    if found is None:
        raise ValueError("not a kernel: it does not say which Linux it is")
    return _checked(found[1].decode("ascii", "replace"))


def _checked(release: str) -> str:
    """It becomes a file's name."""
    if not RELEASE.fullmatch(release):
        raise ValueError(f"a kernel of the strange release {release!r}")
    return release


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
