"""Facts about sparse files, written by GNU tar itself where it is there."""

import io
import subprocess
from pathlib import Path

import pytest

from hawker.image.extents import checked_extents, pax_map_extents, stream_extents
from hawker.image.tar import TarReader
from hawker.image.tarfield import BLOCK, TarError

_FORMS = ["--format=gnu", "--format=posix --sparse-version=1.0", "--format=posix --sparse-version=0.1"]


@pytest.mark.parametrize("form", _FORMS)
def test_sparse_file_of_gnu_tar_is_read_back(tmp_path: Path, form: str) -> None:
    holes = tmp_path / "holes"
    with holes.open("wb") as file:
        for number in range(40):
            file.seek(number << 16)
            file.write(b"%4096d" % number)
        file.truncate(4 << 20)
    subprocess.run(["tar", "-C", tmp_path, "-S", *form.split(), "-cf", tmp_path / "a.tar", "holes"], check=True)
    reader = TarReader(io.BytesIO((tmp_path / "a.tar").read_bytes()))
    [entry] = [found for found in _read_all(reader, tmp_path / "back") if found]
    assert entry == (b"holes", 4 << 20)
    assert (tmp_path / "back").read_bytes() == holes.read_bytes()


def _read_all(reader: TarReader, target: Path) -> list[tuple[bytes, int]]:
    found = []
    for entry in reader:
        found.append((entry.name, entry.size))
        with target.open("wb") as file:
            file.truncate(entry.size)
            for offset, length in entry.extents:
                file.seek(offset)
                file.write(reader.read(length))
    return found


@pytest.mark.parametrize(
    ("extents", "size", "stored"),
    [
        (((0, 10), (5, 10)), 20, 20),  # overlap
        (((10, 5), (0, 5)), 20, 10),  # descending
        (((0, 30),), 20, 30),  # outside
        (((0, 10),), 20, 20),  # fewer than stored
        (((0, -1),), 20, -1),
    ],
)
def test_hostile_map_is_refused(extents: tuple[tuple[int, int], ...], size: int, stored: int) -> None:
    with pytest.raises(TarError, match="a sparse file whose"):
        checked_extents(extents, size, stored)


def test_map_of_odd_length_is_refused() -> None:
    with pytest.raises(TarError, match="map cannot be read"):
        pax_map_extents(b"0,1,2")


def test_map_with_too_many_pieces_is_refused_before_it_is_read() -> None:
    block = b"99999999\n".ljust(BLOCK, b"\0")
    with pytest.raises(TarError, match="more than 65536 pieces"):
        stream_extents(lambda count: block)


def test_map_without_numbers_is_refused() -> None:
    with pytest.raises(TarError, match="map cannot be read"):
        stream_extents(lambda count: b"x" * BLOCK)


def test_cut_off_map_is_refused() -> None:
    with pytest.raises(TarError, match="cut off"):
        stream_extents(lambda count: b"")
