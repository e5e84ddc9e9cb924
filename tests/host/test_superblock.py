"""What a superblock says, from bytes that mke2fs wrote and from bytes that nobody should trust."""

import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.host.ext4 import LENGTH, OFFSET, parse_superblock, read_superblock


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "disk"
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-b", "4096", "-m", "1", str(file), "64M"], check=True)
    return file


def changed(raw: bytes, offset: int, form: str, value: int) -> bytes:
    found = bytearray(raw)
    struct.pack_into(form, found, offset, value)
    return bytes(found)


@pytest.fixture
def raw(file: Path) -> bytes:
    return file.read_bytes()[OFFSET : OFFSET + LENGTH]


def test_a_fresh_filesystem_is_whole_and_nearly_free(file: Path) -> None:
    found = read_superblock(file)
    assert found is not None and found.whole
    assert (found.block_size, found.bytes) == (4096, 64 << 20)
    assert 0.8 * found.blocks < found.blocks_free < found.blocks
    assert found.blocks_reserved == pytest.approx(found.blocks / 100, abs=1)


def test_one_that_has_errors_or_was_not_left_clean_is_not_whole(raw: bytes) -> None:
    for state in (0, 2, 3):
        found = parse_superblock(changed(raw, 58, "<H", state))
        assert found is not None and not found.whole


def test_counts_are_of_64_bits(raw: bytes) -> None:
    found = parse_superblock(changed(raw, 336, "<I", 1))
    assert found is not None and found.blocks > 1 << 32


@pytest.mark.parametrize(
    ("offset", "form", "value"),
    [(56, "<H", 0), (24, "<I", 7), (24, "<I", 0xFFFFFFFF), (4, "<I", 0), (12, "<I", 0xFFFFFFFF), (8, "<I", 0xFFFFFFFF)],
    ids=["magic", "block size", "huge block size", "no blocks", "more free than there are", "more reserved"],
)
def test_one_that_contradicts_itself_is_none(raw: bytes, offset: int, form: str, value: int) -> None:
    assert parse_superblock(changed(raw, offset, form, value)) is None


def test_a_file_that_is_too_short_has_none(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(bytes(OFFSET + 10))
    assert read_superblock(tmp_path / "short") is None


@given(st.binary(min_size=LENGTH, max_size=LENGTH))
def test_any_bytes_are_read_without_an_error(noise: bytes) -> None:
    found = parse_superblock(changed(noise, 56, "<H", 0xEF53))
    assert found is None or 0 <= found.overhead < found.blocks
