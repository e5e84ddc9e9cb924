"""Read back by a reader of the test's own, and by `cpio` where it is installed; that the kernel takes it is seen in
test_guest_kernel.py."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.runtime.kernel import cpio
from hawker.runtime.kernel.cpio import Entry, archive

ENTRIES = (Entry("init", b"\x7fELF", 0o755), Entry("modules/order", b"a.ko\n"), Entry("modules/a.ko", b"abcde"))


def read(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Name, mode and content of each member, up to the trailer, after which is nothing."""
    at = 0
    while True:
        assert data[at : at + 6] == b"070701" and at % 4 == 0
        fields = [int(data[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        name = data[at + 110 : at + 110 + fields[11] - 1].decode()
        assert data[at + 110 + fields[11] - 1] == 0
        start = at + 110 + fields[11] + -(110 + fields[11]) % 4
        at = start + fields[6] + -fields[6] % 4
        if name == "TRAILER!!!":
            assert at == len(data)
            return
        assert (fields[2], fields[3], fields[5]) == (0, 0, 0), "of root, of no time"
        yield name, fields[1], data[start : start + fields[6]]


def test_directories_come_before_what_is_in_them() -> None:
    assert list(read(archive(ENTRIES))) == [
        ("init", 0o100755, b"\x7fELF"),
        ("modules", 0o040755, b""),
        ("modules/order", 0o100644, b"a.ko\n"),
        ("modules/a.ko", 0o100644, b"abcde"),
    ]


@given(st.dictionaries(st.text("abcä.", min_size=1, max_size=20).filter(lambda name: name.strip(".")), st.binary()))
def test_what_is_packed_is_what_is_read(files: dict[str, bytes]) -> None:
    packed = archive(Entry(name, content) for name, content in files.items())
    assert {name: content for name, _, content in read(packed)} == files


def test_the_same_files_give_the_same_bytes() -> None:
    assert archive(ENTRIES) == archive(iter(ENTRIES))


@pytest.mark.skipif(shutil.which("cpio") is None, reason="cpio is not installed")
def test_cpio_reads_it(tmp_path: Path) -> None:
    done = subprocess.run(["cpio", "-t", "--quiet"], input=archive(ENTRIES), capture_output=True, check=True)
    assert done.stdout.split() == [b"init", b"modules", b"modules/order", b"modules/a.ko"]


@pytest.mark.parametrize("path", ["", "/init", "a//b", "../a", "a/..", "./a", "a/", "a\0b", "n" * 256])
def test_a_path_that_is_not_plain_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not a plain relative path"):
        archive([Entry(path, b"")])


def test_a_path_may_be_there_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        archive([Entry("a", b"1"), Entry("a", b"2")])
    with pytest.raises(ValueError, match="twice"):
        archive([Entry("a", b"a file"), Entry("a/b", b"and a directory")])


def test_an_archive_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpio, "MAX_BYTES", 1 << 20)
    with pytest.raises(ValueError, match="more than 1 MiB"):
        archive([Entry("a", bytes(1 << 20))])
