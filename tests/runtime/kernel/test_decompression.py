import gzip
import lzma
import shutil
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from hawker.runtime.kernel.decompression import is_packed, unpacked
from hawker.runtime.kernel.tools import MissingTool
from tests.runtime.kernel.crafted import lz4

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
