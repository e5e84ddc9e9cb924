"""Kernel images: what a file is, which release, and the vmlinux in a bzImage (the kernel's arch/x86/boot.rst).

On arm64 the image is what every VMM boots (arch/arm64/booting.rst), packed with gzip or not.
"""

import re
import struct
from dataclasses import dataclass

from hawker.runtime.kernel.decompression import is_packed, unpacked

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


@dataclass(frozen=True, slots=True)
class KernelImage:
    """`boot` is the file as a boot loader takes it, `direct` the one that VMMs without a boot loader do. They may be
    the same. `pvh`: it can be entered as Cloud Hypervisor does, on x86."""

    release: str
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
