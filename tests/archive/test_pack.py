import os
import stat
from contextlib import nullcontext
from pathlib import Path

import pytest
import zstandard

from hawker.archive.failure import ArchiveDamaged
from hawker.archive.pack import compress, expand

DATA = b"what happened\n" * 10_000


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    (tmp_path / "raw").write_bytes(DATA)
    size = compress(tmp_path / "raw", tmp_path / "packed.zst")
    assert size == (tmp_path / "packed.zst").stat().st_size < len(DATA)
    return tmp_path / "packed.zst"


def test_packed_file_expands_to_its_content(packed: Path, tmp_path: Path) -> None:
    expand(packed, tmp_path / "again", len(DATA))
    assert (tmp_path / "again").read_bytes() == DATA


def test_files_belong_to_their_owner_alone(packed: Path, tmp_path: Path) -> None:
    expand(packed, tmp_path / "again", len(DATA))
    before = os.umask(0)
    try:
        compress(tmp_path / "raw", packed)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (packed, tmp_path / "again")} == {0o600}


def test_a_link_in_the_way_is_replaced_and_not_followed(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"mine")
    (tmp_path / "again").symlink_to(tmp_path / "precious")
    expand(packed, tmp_path / "again", len(DATA))
    assert (tmp_path / "precious").read_bytes() == b"mine"


def test_one_byte_too_many_is_refused(packed: Path, tmp_path: Path) -> None:
    with pytest.raises(ArchiveDamaged, match="expands to more than"):
        expand(packed, tmp_path / "again", len(DATA) - 1)


def test_a_bomb_is_refused_before_it_is_expanded(tmp_path: Path) -> None:
    (tmp_path / "bomb").write_bytes(zstandard.compress(bytes(256 << 20)))
    assert (tmp_path / "bomb").stat().st_size < 1 << 16
    with pytest.raises(ArchiveDamaged, match="expands to more than"):
        expand(tmp_path / "bomb", tmp_path / "again", 4 << 20)
    assert (tmp_path / "again").stat().st_size == 0


def test_a_bomb_that_does_not_say_its_size_is_not_expanded_either(tmp_path: Path) -> None:
    with (tmp_path / "bomb").open("wb") as file, zstandard.ZstdCompressor().stream_writer(file) as bomb:
        for _ in range(64):
            bomb.write(bytes(1 << 20))
    with pytest.raises(ArchiveDamaged, match="does not say"):
        expand(tmp_path / "bomb", tmp_path / "again", 4 << 20)
    assert (tmp_path / "again").stat().st_size == 0


@pytest.mark.parametrize(("window_log", "sound"), [(23, True), (27, False)])
def test_a_window_that_takes_much_memory_is_refused(window_log: int, sound: bool, tmp_path: Path) -> None:
    """A frame made by hand (RFC 8878, 3.1.1): a head that says window and size, and 16 runs of 128 KiB of one byte."""
    head = bytes.fromhex("28b52ffd80") + bytes([(window_log - 10) << 3]) + (16 << 17).to_bytes(4, "little")
    runs = b"".join((1 << 20 | 1 << 1 | last).to_bytes(3, "little") + b"!" for last in [0] * 15 + [1])
    (tmp_path / "wide").write_bytes(head + runs)
    with nullcontext() if sound else pytest.raises(ArchiveDamaged, match="not intact"):
        expand(tmp_path / "wide", tmp_path / "again", 4 << 20)


@pytest.mark.parametrize(
    "spoil", [lambda data: data[:-5], lambda data: data[:-1] + b"!", lambda _: b"no zstd", lambda _: b""]
)
def test_damaged_pack_is_refused(packed: Path, tmp_path: Path, spoil: object) -> None:
    assert callable(spoil)
    packed.write_bytes(spoil(packed.read_bytes()))
    with pytest.raises(ArchiveDamaged):
        expand(packed, tmp_path / "again", len(DATA))
