"""Objects go to a place and come from it as bytes, by files that do not stay."""

from pathlib import Path

import pytest

from hawker.archive.backend import ArchiveBackend
from hawker.archive.failure import ArchiveDamaged
from hawker.backup.place import BackupPlace
from hawker.errors import HawkerError

pytestmark = pytest.mark.anyio


async def test_object_is_what_was_put_last_and_leaves_nothing_on_its_way(place: ArchiveBackend, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    objects = BackupPlace(place, scratch)
    assert await objects.get("a/b", 10) is None
    await objects.put_new("a/b", b"first")
    await objects.put_new("a/b", b"other")
    assert await objects.get("a/b", 10) == b"first"
    await objects.put("a/b", b"second")
    assert await objects.get("a/b", 6) == b"second"
    with pytest.raises(ArchiveDamaged, match="6 bytes, 5 at the most"):
        await objects.get("a/b", 5)
    assert list(scratch.iterdir()) == []


async def test_scratch_that_cannot_be_made_is_an_error_of_the_place(place: ArchiveBackend, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(HawkerError, match="file"):
        await BackupPlace(place, tmp_path / "file" / "scratch").put("a/b", b"first")
