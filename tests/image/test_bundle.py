"""Facts about files in directories and archives that are read in place."""

import gzip
from pathlib import Path

import pytest
import zstandard

from hawker.image.failure import BadImage
from hawker.image.layout import DirectoryBundle, TarBundle, open_archive
from hawker.image.limits import MIB, ImageLimits
from tests.fixtures.parts import directory, hard_link, symlink, tar


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


def archive(tmp_path: Path, packed: bytes) -> TarBundle:
    (tmp_path / "a.tar").write_bytes(packed)
    return open_archive(
        tmp_path / "a.tar", "a.tar", tmp_path / "scratch", ImageLimits(max_import_bytes=MIB), lambda: None
    )


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


def test_missing_archive_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadImage, match="cannot read label: No such file"):
        open_archive(tmp_path / "nope", "label", tmp_path / "scratch", ImageLimits(), lambda: None)
