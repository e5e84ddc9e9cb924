"""Facts about files in directories and archives that are read in place."""

import gzip
import tarfile
from pathlib import Path

import pytest
import zstandard

from hawker.image import layout
from hawker.image.failure import BadImage
from hawker.image.layout import DirectoryBundle, TarBundle, open_archive
from hawker.image.limits import MIB, ImageLimits
from tests.fixtures.parts import directory, entry, hard_link, symlink, tar


def content(bundle: TarBundle | DirectoryBundle, name: str) -> bytes | None:
    span = bundle.find(name)
    return span.read(0, span.size) if span else None


def test_files_of_a_directory_are_found(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").write_bytes(b"x")
    bundle = DirectoryBundle(tmp_path)
    assert content(bundle, "d/f") == b"x"
    assert bundle.find("d") is None
    assert bundle.find("nope") is None


_LIMITS = ImageLimits(max_import_bytes=MIB, max_names_bytes=100_000)


def archive(tmp_path: Path, packed: bytes) -> TarBundle:
    (tmp_path / "a.tar").write_bytes(packed)
    return open_archive(tmp_path / "a.tar", "a.tar", tmp_path / "scratch", _LIMITS, lambda: None)


_TAR = tar(
    directory("a"),
    ("./a/layer.tar", b"one" * 1000),
    ("b/layer.tar", b"two"),
    symlink("c/layer.tar", "../a/layer.tar"),
    hard_link("d", "b/layer.tar"),
    symlink("loop", "loop"),
    symlink("out", "/etc/passwd"),
)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
def test_files_of_an_archive_are_found_packed_or_not(tmp_path: Path, pack: type[bytes]) -> None:
    bundle = archive(tmp_path, pack(_TAR))
    assert content(bundle, "a/layer.tar") == b"one" * 1000
    assert content(bundle, "./b/layer.tar") == b"two"
    assert content(bundle, "c/layer.tar") == b"one" * 1000
    assert content(bundle, "d") == b"two"
    assert bundle.find("a") is None


@pytest.mark.parametrize("name", ["loop", "out", "../../etc/passwd", "/etc/passwd"])
def test_names_stay_within_the_archive(tmp_path: Path, name: str) -> None:
    assert archive(tmp_path, _TAR).find(name) is None


@pytest.mark.parametrize(
    ("packed", "says"),
    [
        (b"not a tar at all" * 100, "a.tar is not an intact tar archive"),
        (gzip.compress(_TAR)[:-100], "a.tar is not intact gzip"),
        (gzip.compress(bytes(2 * MIB)), f"a.tar unpacks to more than {MIB} bytes"),
    ],
)
def test_bad_archive_is_refused(tmp_path: Path, packed: bytes, says: str) -> None:
    with pytest.raises(BadImage, match=says):
        archive(tmp_path, packed)


_LONG = "n" * 4000


@pytest.mark.parametrize(
    "entries",
    [
        [(f"{number}{_LONG}", b"") for number in range(30)],
        [symlink(f"{number}", _LONG) for number in range(30)],
        [symlink(f"{_LONG}/{number}", "x") for number in range(15)],
        [hard_link(f"{number}", _LONG) for number in range(30)],
        [(_LONG, b"")] * 30,
    ],
    ids=["names", "links", "places of links", "hard links", "one name again and again"],
)
def test_archive_whose_names_take_much_memory_is_refused(
    tmp_path: Path, entries: list[tarfile.TarInfo | tuple[str, bytes]]
) -> None:
    with pytest.raises(BadImage, match=r"a\.tar has more than 100000 bytes of names and links"):
        archive(tmp_path, tar(*entries))
    archive(tmp_path, tar(*entries[:10]))


def test_sparse_file_does_not_reach_into_the_next_one(tmp_path: Path) -> None:
    """Each of hundreds would have been the whole rest of the archive, to be read for its digest."""
    sparse = entry("s")
    sparse.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1000000"}
    bundle = archive(tmp_path, tar((sparse, b"1\n0\n3\n".ljust(512, b"\0") + b"abc"), ("next", b"x" * 1000)))
    assert content(bundle, "s") == b"abc"
    assert content(bundle, "next") == b"x" * 1000


def test_archive_of_many_entries_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one name count, too: each is read."""
    monkeypatch.setattr(layout, "_ENTRIES_LIMIT", 10)
    for entries in ([("x", b"")] * 11, [directory("x")] * 11):
        with pytest.raises(BadImage, match=r"a\.tar has more than 10 entries"):
            archive(tmp_path, tar(*entries))
    archive(tmp_path, tar(*[("x", b"")] * 10))


def test_reading_of_entries_ends_when_nobody_wants_it(tmp_path: Path) -> None:
    class CancelledError(Exception):
        pass

    def check() -> None:
        raise CancelledError

    (tmp_path / "a.tar").write_bytes(_TAR)
    with pytest.raises(CancelledError):
        TarBundle(tmp_path / "a.tar", "a.tar", _LIMITS, check)


def test_name_beyond_unicode_is_found_as_it_is_written(tmp_path: Path) -> None:
    bundle = archive(tmp_path, tar(("b\udce4", b"x"), ("\u00e4", b"y")))
    assert content(bundle, "b\udce4") == b"x"
    assert content(bundle, "\u00e4") == b"y"
    assert bundle.find("\ud800") is None


def test_missing_archive_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadImage, match="cannot read label: No such file"):
        open_archive(tmp_path / "nope", "label", tmp_path / "scratch", ImageLimits(), lambda: None)
