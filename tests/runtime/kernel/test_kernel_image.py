import gzip
import lzma
import shutil

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from hawker.runtime.kernel import kernel_image
from hawker.runtime.kernel.kernel_image import read_image
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
