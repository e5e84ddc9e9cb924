"""Trees there and back, and streams of a machine that lies."""

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.cli.copy_stream import CopyTally, CopyUnpacker, CutShort, pack

MAGIC = b"HKCP\x01\x00"
FILE, DIRECTORY, SYMLINK = 1, 2, 3


def text(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value + b"\0"


def entry(kind: int, path: bytes, target: bytes = b"", *, size: int = 0, mode: int = 0o644) -> bytes:
    return b"\1" + struct.pack("<BIIIqQ", kind, mode, 0, 0, 0, size) + text(path) + text(target)


def data(content: bytes, at: int = 0) -> bytes:
    return b"\2" + struct.pack("<QI", at, len(content)) + content


def file(path: bytes, content: bytes = b"evil") -> bytes:
    return entry(FILE, path, size=len(content)) + data(content) + b"\3"


def unpack(destination: Path, *records: bytes, name: str = "name", piece: int = 7) -> CopyUnpacker:
    unpacker = CopyUnpacker(destination, name, CopyTally(), owners=False)
    stream = MAGIC + b"".join(records)
    try:
        for at in range(0, len(stream), piece):
            unpacker.feed(stream[at : at + piece])
    finally:
        unpacker.close()
    return unpacker


TREE = entry(DIRECTORY, b"", mode=0o755)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "a/b").mkdir(parents=True)
    (root / "a/file").write_bytes(b"x" * 200_000)
    (root / "a/b/empty").touch(mode=0o600)
    (root / "a/link").symlink_to("/somewhere/else")
    return root


def test_a_tree_comes_out_as_it_went_in(tree: Path, tmp_path: Path) -> None:
    tally = CopyTally()
    unpacker = CopyUnpacker(tmp_path / "copy", "tree", tally, owners=False)
    for piece in pack(tree, CopyTally()):
        unpacker.feed(piece)
    assert unpacker.complete and (tally.files, tally.data) == (2, 200_000)
    copy = tmp_path / "copy"
    assert (copy / "a/file").read_bytes() == b"x" * 200_000
    assert (copy / "a/b/empty").stat().st_mode & 0o777 == 0o600
    assert (copy / "a/link").readlink() == Path("/somewhere/else")


def test_into_a_directory_that_is_there_a_copy_goes_under_its_name(tree: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    unpacker = CopyUnpacker(there, "tree", CopyTally(), owners=False)
    for piece in pack(tree, CopyTally()):
        unpacker.feed(piece)
    assert (there / "tree/a/file").is_file()


def test_a_file_replaces_a_file_and_a_link_but_is_not_written_through_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    there = tmp_path / "there"
    there.mkdir()
    (there / "f").symlink_to(outside)
    unpack(there, TREE, file(b"f"), b"\5", name="")
    assert (there / "f").read_text() == "evil" and not (there / "f").is_symlink()
    assert outside.read_text() == "mine"


@pytest.mark.parametrize("path", [b"../up", b"a/../../up", b"/etc/up", b"a//b", b".", b"a/", b"a\0b"])
def test_a_path_that_leads_elsewhere_is_refused(path: bytes, tmp_path: Path) -> None:
    with pytest.raises(CutShort):
        unpack(tmp_path / "there", TREE, file(path))
    assert not (tmp_path / "up").exists()


def test_a_link_that_was_sent_before_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target = os.fsencode(outside)
    for sent in (file(b"way/f"), entry(DIRECTORY, b"way/d"), entry(SYMLINK, b"way/l", b"x"), entry(DIRECTORY, b"way")):
        with pytest.raises(OSError):
            unpack(tmp_path / "there", TREE, entry(SYMLINK, b"way", target), sent)
    assert list(outside.iterdir()) == []


def test_a_top_that_becomes_a_link_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with pytest.raises(OSError):
        unpack(tmp_path / "there", entry(SYMLINK, b"", os.fsencode(outside)), file(b"f"))
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        data(b"x"),
        entry(FILE, b"f", size=1) + data(b"xx"),
        entry(FILE, b"f", size=1) + data(b"x", at=2**63),
        entry(FILE, b"f", size=1) + b"\2" + struct.pack("<QI", 0, 2**32 - 1),
        entry(FILE, b"f", size=1) + entry(FILE, b"g", size=1),
        entry(FILE, b"f", size=1) + b"\5",
        entry(9, b"f"),
        b"\x77",
        entry(FILE, b"f" * 5000),
        b"\3",
    ],
)
def test_a_stream_that_is_no_copy_is_refused_and_leaves_no_file(wrong: bytes, tmp_path: Path) -> None:
    with pytest.raises(CutShort):
        unpack(tmp_path / "there", TREE, wrong)
    assert list((tmp_path / "there").iterdir()) == []


def test_a_stream_that_breaks_off_leaves_no_half_file(tmp_path: Path) -> None:
    unpacker = unpack(tmp_path / "there", TREE, entry(FILE, b"f", size=10), data(b"half"))
    assert not unpacker.complete
    assert list((tmp_path / "there").iterdir()) == []


def test_no_set_user_id_comes_from_a_machine_unasked(tmp_path: Path) -> None:
    unpack(tmp_path / "there", TREE, entry(FILE, b"su", size=0, mode=0o4755) + b"\3", b"\5")
    assert (tmp_path / "there/su").stat().st_mode & 0o7777 == 0o755


def test_little_is_held_of_what_is_sent(tmp_path: Path) -> None:
    unpacker = CopyUnpacker(tmp_path / "there", "n", CopyTally(), owners=False)
    unpacker.feed(MAGIC + TREE + entry(FILE, b"f", size=1 << 22))
    for at in range(0, 1 << 22, 1 << 16):
        unpacker.feed(data(b"x" * (1 << 16), at))
        assert len(unpacker._held) == 0
    unpacker.feed(b"\3\5")
    assert (tmp_path / "there/f").stat().st_size == 1 << 22


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_any_bytes_end_in_a_refusal_or_a_wait(pieces: list[bytes]) -> None:
    unpacker = CopyUnpacker(Path("/nonexistent/there"), "n", CopyTally(), owners=False)
    unpacker.feed(MAGIC)
    try:
        for piece in pieces:
            unpacker.feed(piece)
    except (CutShort, OSError):
        pass
    finally:
        unpacker.close()
