import gzip
import lzma
import shutil
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from hawker.runtime.kernel import kernel_image
from hawker.runtime.kernel.kernel_image import is_packed, read_image, unpacked
from hawker.runtime.kernel.tools import MissingTool
from tests.runtime.kernel.crafted import RELEASE, bzimage, elf, lz4, vmlinux

PACKED = {
    "gzip": gzip.compress(vmlinux()),
    "xz": lzma.compress(vmlinux()),
    "zstd": zstandard.ZstdCompressor().compress(vmlinux()),
    **({"lz4": lz4(vmlinux())} if shutil.which("lz4") else {}),
    "plain": vmlinux(),
}
ARM64 = bytes(56) + b"ARMd" + bytes(40) + f"Linux version {RELEASE} (x)".encode()


@pytest.mark.parametrize("payload", PACKED.values(), ids=PACKED)
def test_the_vmlinux_in_a_bzimage_is_found_however_it_is_packed(payload: bytes) -> None:
    kernel = read_image(bzimage(payload=payload + b"\0\0\1\0"))
    assert (kernel.release, kernel.boot) == (RELEASE, bzimage(payload=payload + b"\0\0\1\0"))
    assert kernel.direct.startswith(vmlinux()) and kernel.pvh


def test_a_vmlinux_is_both() -> None:
    kernel = read_image(vmlinux("6.6.6", pvh=False))
    assert kernel.release == "6.6.6" and kernel.boot == kernel.direct == vmlinux("6.6.6", pvh=False)
    assert not kernel.pvh


@pytest.mark.parametrize("data", [ARM64, gzip.compress(ARM64)], ids=["plain", "packed"])
def test_an_arm64_image_is_both_unpacked(data: bytes) -> None:
    kernel = read_image(data)
    assert (kernel.release, kernel.boot, kernel.direct) == (RELEASE, ARM64, ARM64)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "not a kernel"),
        (b"#!/bin/sh\n" * 100, "not a kernel: neither"),
        (vmlinux(banner=False), "does not say which"),
        (elf(sections={b".text": b"Linux version 1.2 x"}), "nothing to load"),
        (bzimage(payload=b"packed some other way"), "packed in an unknown way"),
        (bzimage(payload=PACKED["gzip"], inner=9), "cut off"),
        (bzimage(payload=PACKED["gzip"][:-40]), "cut off"),
        (bzimage(payload=gzip.compress(b"no ELF")), "not an ELF"),
        (bzimage("5.5.5", payload=PACKED["gzip"]), r"says it is 5\.5\.5, and holds 6\.1\.0-test"),
        (bzimage(payload=PACKED["gzip"])[:0x230], "cut off"),
        (vmlinux("../../etc"), "strange release"),
        (vmlinux(".hidden"), "strange release"),
    ],
)
def test_file_that_is_no_whole_kernel_is_refused_with_the_reason(data: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read_image(data)


def test_a_bzimage_too_old_to_say_where_its_kernel_is() -> None:
    old = bytearray(bzimage(payload=PACKED["gzip"]))
    old[0x206:0x208] = b"\x07\x02"
    with pytest.raises(ValueError, match="too old"):
        read_image(bytes(old))


def test_a_kernel_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_image, "MAX_BYTES", 1 << 20)
    with pytest.raises(ValueError, match="larger than 1 MiB"):
        read_image(bytes((1 << 20) + 1))
    bomb = gzip.compress(bytes(2 << 20))
    with pytest.raises(ValueError, match="more than 1048576 bytes"):
        read_image(bzimage(payload=bomb))


@given(st.binary(max_size=64), st.integers(0, 0x27F))
def test_any_change_to_a_header_ends_in_a_kernel_or_a_refusal(noise: bytes, at: int) -> None:
    data = bytearray(bzimage(payload=PACKED["gzip"]))
    data[at : at + len(noise)] = noise
    try:
        read_image(bytes(data))
    except ValueError:
        return


CONTENT = bytes(range(256)) * 40
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "lzma": lambda data: lzma.compress(data, format=lzma.FORMAT_ALONE),
    "zstd": zstandard.ZstdCompressor().compress,
    **({"lz4": lz4} if shutil.which("lz4") else {}),
}

each_way = pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)


@each_way
def test_packed_content_comes_back(pack: Callable[[bytes], bytes]) -> None:
    assert is_packed(pack(CONTENT)) and unpacked(pack(CONTENT), len(CONTENT)) == CONTENT


@each_way
def test_the_size_behind_it_is_passed_over(pack: Callable[[bytes], bytes]) -> None:
    assert unpacked(pack(CONTENT) + len(CONTENT).to_bytes(4, "little"), len(CONTENT)) == CONTENT


@each_way
def test_nothing_is_unpacked_beyond_the_limit(pack: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ValueError, match="more than"):
        unpacked(pack(bytes(1 << 20)), 1 << 16)


@pytest.mark.parametrize("name", ["gzip", "xz", "zstd"])
def test_packed_data_cut_off_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"cut off|damaged"):
        unpacked(PACKERS[name](CONTENT)[:-20], 1 << 20)


@pytest.mark.parametrize("name", ["gzip", "xz", "zstd"])
def test_damaged_packed_data_is_refused(name: str) -> None:
    packed = bytearray(PACKERS[name](CONTENT))
    packed[len(packed) // 2 :] = b"\xff" * (len(packed) - len(packed) // 2)
    with pytest.raises(ValueError, match=r"damaged|cut off"):
        unpacked(bytes(packed), 1 << 20)


def test_plain_data_is_as_it_is() -> None:
    assert unpacked(b"plain", 1) == b"plain" and not is_packed(b"plain")


@pytest.mark.skipif(shutil.which("lz4") is None, reason="lz4 is not installed")
@given(st.binary(max_size=200))
@settings(max_examples=20)
def test_any_bytes_as_an_lz4_block_end_in_bytes_or_a_refusal(block: bytes) -> None:
    try:
        unpacked(b"\x02\x21\x4c\x18" + len(block).to_bytes(4, "little") + block, 1 << 24)
    except ValueError:
        return


def test_lz4_that_is_not_installed_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None)
    with pytest.raises(MissingTool, match="lz4 is missing: install the Debian package lz4"):
        unpacked(b"\x02\x21\x4c\x18", 1)
