import gzip
import lzma
from collections.abc import Callable

import pytest
import zstandard

from hawker.runtime.kernel.inflate import is_packed, unpacked
from tests.runtime.kernel.test_lz4 import frame, literals

CONTENT = bytes(range(256)) * 40
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "lzma": lambda data: lzma.compress(data, format=lzma.FORMAT_ALONE),
    "zstd": zstandard.ZstdCompressor().compress,
    "lz4": lambda data: frame(literals(data)),
}

each_way = pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)


@each_way
def test_what_was_packed_comes_back(pack: Callable[[bytes], bytes]) -> None:
    assert is_packed(pack(CONTENT)) and unpacked(pack(CONTENT), len(CONTENT)) == CONTENT


@each_way
def test_the_size_behind_it_is_passed_over(pack: Callable[[bytes], bytes]) -> None:
    assert unpacked(pack(CONTENT) + len(CONTENT).to_bytes(4, "little"), len(CONTENT)) == CONTENT


@each_way
def test_nothing_is_unpacked_beyond_the_limit(pack: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ValueError, match="more than"):
        unpacked(pack(bytes(1 << 20)), 1 << 16)


@pytest.mark.parametrize("name", ["gzip", "xz", "zstd"])
def test_what_is_cut_off_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"cut off|damaged"):
        unpacked(PACKERS[name](CONTENT)[:-20], 1 << 20)


@pytest.mark.parametrize("name", ["gzip", "xz", "zstd"])
def test_what_is_damaged_is_refused(name: str) -> None:
    packed = bytearray(PACKERS[name](CONTENT))
    packed[len(packed) // 2 :] = b"\xff" * (len(packed) - len(packed) // 2)
    with pytest.raises(ValueError, match=r"damaged|cut off"):
        unpacked(bytes(packed), 1 << 20)


def test_what_is_not_packed_is_as_it_is() -> None:
    assert unpacked(b"plain", 1) == b"plain" and not is_packed(b"plain")
