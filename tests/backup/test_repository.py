"""A repository's key and objects: one key, whoever comes first; nothing is read under another name."""

import shutil
from functools import partial
from pathlib import Path

import anyio
import pytest

from hawker.archive.backend import ArchiveBackend
from hawker.archive.directory import DirectoryBackend
from hawker.archive.failure import ArchiveDamaged, ArchiveRefused
from hawker.backup.format import HOLE, SEGMENT_BYTES, BackupSegment
from hawker.backup.repository import BackupRepository, read_passphrase
from hawker.errors import NotFound
from tests.backup.conftest import ABOUT, PASSPHRASE, files_below, opened

pytestmark = pytest.mark.anyio
BACKUP = "acme/web/vol_a/20261123T161500Z-ab12"


async def test_two_nodes_that_begin_at_once_have_one_key(place: ArchiveBackend, tmp_path: Path) -> None:
    nodes = [opened(place, tmp_path / f"scratch{number}") for number in range(3)]
    async with anyio.create_task_group() as tasks:
        for node in nodes:
            tasks.start_soon(partial(node.keys, make=True))
    assert len({(await node.keys()).chunk_name(b"a") for node in nodes}) == 1


async def test_another_passphrase_opens_nothing(place: ArchiveBackend, tmp_path: Path) -> None:
    await opened(place, tmp_path / "scratch").keys(make=True)
    with pytest.raises(ArchiveRefused, match="passphrase does not open"):
        await opened(place, tmp_path / "other", b"another passphrase").keys()


async def test_an_empty_place_is_read_as_none_and_stays_empty(kept: Path, local: BackupRepository) -> None:
    with pytest.raises(NotFound):
        await local.manifest(BACKUP)
    assert files_below(kept) == []


async def test_backups_without_their_config_get_no_new_key(kept: Path, local: BackupRepository, tmp_path: Path) -> None:
    await local.put_manifest(BACKUP, ABOUT)
    (kept / "config").unlink()
    with pytest.raises(ArchiveDamaged, match="put that back"):
        await opened(DirectoryBackend(kept), tmp_path / "scratch").keys(make=True)


async def test_backups_are_listed_below_what_they_belong_to(repository: BackupRepository) -> None:
    for name in (BACKUP, "acme/web2/vol_b/20261123T161500Z-ab12", "other/web/vol_c/20261123T161500Z-ab12"):
        await repository.put_manifest(name, ABOUT)
    assert await repository.backups("acme/web/") == [BACKUP]
    assert len(await repository.backups("")) == 3


async def test_a_manifest_under_another_key_is_refused(kept: Path, local: BackupRepository) -> None:
    await local.put_manifest(BACKUP, ABOUT)
    moved = kept / "backups/acme/other/vol_a"
    moved.mkdir(parents=True)
    shutil.copy(kept / "backups" / BACKUP, moved / "20261123T161500Z-ab12")
    with pytest.raises(ArchiveDamaged, match="seal is broken"):
        await local.manifest("acme/other/vol_a/20261123T161500Z-ab12")


async def test_a_manifest_that_is_too_large_is_not_read(kept: Path, local: BackupRepository) -> None:
    await local.put_manifest(BACKUP, ABOUT)
    with (kept / "backups" / BACKUP).open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ArchiveDamaged, match="at the most"):
        await local.manifest(BACKUP)


async def test_a_segment_in_another_s_place_is_refused(local: BackupRepository) -> None:
    keys = await local.keys(make=True)
    name = keys.segment_name([keys.chunk_name(b"a")])
    await local.put_segment(name, BackupSegment(chunks=(None,)))
    with pytest.raises(ArchiveDamaged, match="not what its name says"):
        await local.segment(name)
    with pytest.raises(ArchiveDamaged, match="not there"):
        await local.segment(HOLE)


async def test_nothing_is_left_on_the_way(local: BackupRepository, tmp_path: Path) -> None:
    (tmp_path / "scratch" / "left").mkdir(parents=True)
    again = opened(DirectoryBackend(tmp_path / "objects"), tmp_path / "scratch")
    await again.put_manifest(BACKUP, ABOUT)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_passphrase_is_the_first_line_and_long_enough(tmp_path: Path) -> None:
    file = tmp_path / "passphrase"
    file.write_bytes(PASSPHRASE + b"\nmore\n")
    assert read_passphrase(file) == PASSPHRASE
    for text in (b"", b"short\n"):
        file.write_bytes(text)
        with pytest.raises(ArchiveRefused, match="less than"):
            read_passphrase(file)
    with pytest.raises(ArchiveRefused, match="cannot be read"):
        read_passphrase(tmp_path / "none")


def test_a_volume_of_half_a_terabyte_has_a_small_manifest() -> None:
    assert (500 << 30) // SEGMENT_BYTES * len(HOLE) == 1_024_000
