"""Facts about backups of this host's volumes: real files, a real file system, another host that restores them."""

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.archive.directory import DirectoryBackend
from hawker.archive.failure import ArchiveDamaged
from hawker.backup.format import CHUNK_BYTES
from hawker.backup.repository import BackupRepository
from hawker.clock import SystemClock
from hawker.errors import NotFound
from hawker.host.unreadable import PatientReader
from hawker.ids import AppName, SnapshotId, VolumeId
from hawker.record.volume import Fstype, SealedKey, SnapshotRecord, SnapshotStatus
from hawker.vault import Vault
from hawker.volume.encryption import VolumeKeys
from hawker.volume.host_backups import HostBackups
from tests.backup.conftest import SIZE, files_below
from tests.fixtures.sharing_disk import KINDS, sharing_disk
from tests.short_form import short_form

pytestmark = pytest.mark.anyio
CLOCK = SystemClock()
VOLUME, SNAPSHOT = VolumeId("vol_0123456789abcdef"), SnapshotId("vs_0123456789abcdef")
BACKUP, LATER, LATEST, LAST = (f"acme/web/{VOLUME}/2026112{day}T161500Z-aaaa" for day in (3, 4, 5, 6))


class Host:
    """With a key of its own; all hosts know one passphrase and one place."""

    def __init__(self, root: Path, place: Path, key: bytes = bytes(32)) -> None:
        self.root = root
        self.snapshots = root / "snapshots"
        self.snapshots.mkdir(parents=True)
        self.keys = VolumeKeys(Vault(key, CLOCK), CLOCK)
        self.repository = BackupRepository(DirectoryBackend(place), root / "way", lambda: b"correct horse", CLOCK)
        self.backups = self.backups_with(floor_bytes=0)

    def backups_with(self, floor_bytes: int) -> HostBackups:
        return HostBackups(self.repository, self.snapshots, self.file, self.keys, CLOCK, floor_bytes)

    def file(self, volume_id: VolumeId) -> Path:
        return self.root / "volumes" / volume_id / "disk"

    def snapshot(self, content: bytes = b"data" * 1000, key: SealedKey | None = None) -> SnapshotRecord:
        (self.snapshots / SNAPSHOT).write_bytes(content)
        return SnapshotRecord(
            id=SNAPSHOT,
            volume=VOLUME,
            app=AppName("web"),
            status=SnapshotStatus.CREATED,
            volume_gb=1,
            encrypted=key is not None,
            key=key,
            guest_written=True,
            retention_days=1,
            kept_until=0,
            created_at=1.0,
        )

    def content(self, volume_id: VolumeId) -> bytes:
        return self.file(volume_id).read_bytes()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def here(tmp_path: Path) -> Host:
    return Host(tmp_path / "here", tmp_path / "place")


@pytest.fixture
def there(tmp_path: Path) -> Host:
    return Host(tmp_path / "there", tmp_path / "place", key=b"1" * 32)


def formatted(below: Path) -> Path:
    """A file system with a text in it."""
    tree, file = below / "tree", below / "disk"
    (tree / "a").mkdir(parents=True)
    (tree / "a" / "text").write_text("written before\n")
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", str(tree), str(file), "64M"], check=True)
    return file


def text_in(file: Path) -> str:
    """In a file system that is clean."""
    subprocess.run(["e2fsck", "-fn", str(file)], check=True, capture_output=True)
    shown = subprocess.run(["debugfs", "-R", "cat /a/text", str(file)], check=True, capture_output=True, text=True)
    return shown.stdout


async def test_a_file_system_is_restored_on_another_host(here: Host, there: Host, tmp_path: Path) -> None:
    file = formatted(tmp_path)
    await here.backups.save(BACKUP, here.snapshot(file.read_bytes()), "data")
    await there.backups.restore(BACKUP, VOLUME)
    assert text_in(there.file(VOLUME)) == "written before\n" and there.content(VOLUME) == file.read_bytes()


async def test_the_key_of_an_encrypted_volume_goes_along(here: Host, there: Host) -> None:
    key = here.keys.new(VolumeId("vol_of_which_it_is_a_copy"))
    await here.backups.save(BACKUP, here.snapshot(key=key), "data")
    found = await there.backups.find(BACKUP)
    assert found.key is not None and there.keys.open(found.key) == here.keys.open(key)
    assert found.encrypted and found.guest_written and (found.fstype, found.size_bytes) == (Fstype.EXT4, 4000)


async def test_later_backup_sends_what_changed(here: Host) -> None:
    whole = await here.backups.save(BACKUP, here.snapshot(b"a" * (3 << 20)), "data")
    again = await here.backups.save(LATER, here.snapshot(b"a" * (3 << 20)), "data")
    assert (whole.stored_bytes, again.stored_bytes, again.sent_bytes) == (3 << 20, 3 << 20, 0)
    assert await here.backups.list("acme/web/") == [BACKUP, LATER]


async def test_damaged_predecessor_does_not_stop_the_next_backup(here: Host, tmp_path: Path) -> None:
    await here.backups.save(BACKUP, here.snapshot(), "data")
    (tmp_path / "place" / "backups" / BACKUP).write_bytes(b"rot")
    await here.backups.save(LATER, here.snapshot(b"new" * 1000), "data")
    await here.backups.restore(LATER, VOLUME)
    assert here.content(VOLUME) == b"new" * 1000


async def test_restore_that_fails_leaves_no_file(here: Host, tmp_path: Path) -> None:
    await here.backups.save(BACKUP, here.snapshot(), "data")
    [pack] = [path for path in (tmp_path / "place" / "packs").rglob("*") if path.is_file()]
    pack.write_bytes(b"rot")
    with pytest.raises(ArchiveDamaged):
        await here.backups.restore(BACKUP, VOLUME)
    assert list(here.file(VOLUME).parent.iterdir()) == []


async def test_file_that_is_there_is_left_as_it_is(here: Host) -> None:
    await here.backups.save(BACKUP, here.snapshot(), "data")
    await here.backups.restore(BACKUP, VOLUME)
    here.file(VOLUME).write_bytes(b"written since")
    await here.backups.restore(BACKUP, VOLUME)
    assert here.content(VOLUME) == b"written since"


async def test_snapshot_without_a_file_is_not_found(here: Host) -> None:
    record = here.snapshot()
    (here.snapshots / SNAPSHOT).unlink()
    with pytest.raises(NotFound):
        await here.backups.save(BACKUP, record, "data")


async def test_backup_beyond_its_retention_goes_once_a_day_whichever_host_looks(here: Host, there: Host) -> None:
    assert await here.backups.prune(1, 0) == 0, "a place that is none is left as it is"
    for backup in (BACKUP, LATER):
        await here.backups.save(backup, here.snapshot(), "data")
    assert await there.backups.prune(1, 0) == 1
    assert await here.backups.list("") == [LATER]
    await here.backups.save(BACKUP, here.snapshot(), "data")
    assert await here.backups.prune(1, 0) == 0
    assert await here.backups.list("") == [BACKUP, LATER]


async def test_backups_are_verified_at_a_bounded_speed_and_damage_is_told_of_those_that_have_it(
    here: Host, there: Host, tmp_path: Path
) -> None:
    rests = 0

    async def rest() -> None:
        nonlocal rests
        rests += 1

    assert await here.backups.verify(100, rest) is None, "a place that is none is left as it is"
    assert not (tmp_path / "place").exists()
    await here.backups.save(BACKUP, here.snapshot(b"a" * 1000), "data")
    await here.backups.save(LATER, here.snapshot(b"b" * 1000), "data")
    [damaged, _] = files_below(tmp_path / "place" / "packs")
    damaged.write_bytes(b"rot")
    report = await there.backups.verify(100, rest)
    assert report is not None and (report.packs, rests, len(report.found)) == (1, 1, 1)
    checks = await here.backups.checks("acme/web/")
    assert sorted(check.found is None for check in checks.values()) == [False, True]
    assert await here.backups.checks("acme/other/") == {}


async def test_damage_that_was_found_is_written_anew_by_the_next_backup_once(
    here: Host, there: Host, tmp_path: Path
) -> None:
    async def rest() -> None:
        return None

    await here.backups.save(BACKUP, here.snapshot(b"a" * 1000), "data")
    [pack] = files_below(tmp_path / "place" / "packs")
    pack.write_bytes(b"rot")
    unknown = await here.backups.save(LATER, here.snapshot(b"a" * 1000), "data")
    assert unknown.sent_bytes == 0, "nobody knows of it yet"
    report = await there.backups.verify(100, rest)
    assert report is not None and len(report.found) == 2
    mended = await here.backups.save(LATEST, here.snapshot(b"a" * 1000), "data")
    assert mended.sent_bytes > 0
    pack.unlink()  # as a prune does once no backup has it any more
    for number, backup in enumerate((BACKUP, LATER, LATEST)):
        volume = VolumeId(f"vol_{number:016}")
        await there.backups.restore(backup, volume)
        assert there.content(volume) == b"a" * 1000
    after = await here.backups.save(LAST, here.snapshot(b"a" * 1000), "data")
    assert after.sent_bytes == 0


# Where files share blocks.


@pytest.fixture(
    params=short_form(KINDS, lambda kind: kind == "xfs", "tests/backup/test_shared_blocks.py has both kinds")
)
def sharing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    with sharing_disk(tmp_path, request.param) as root:
        yield Host(root / "here", tmp_path / "place")


def bases(host: Host) -> list[Path]:
    return sorted(host.file(VOLUME).parent.glob("saved-*"))


def cloned(host: Host) -> SnapshotRecord:
    """A snapshot of the volume, as a node takes it."""
    record = host.snapshot(b"")
    (host.snapshots / SNAPSHOT).unlink()
    subprocess.run(["cp", "--reflink=always", host.file(VOLUME), host.snapshots / SNAPSHOT], check=True)
    return record


def write_volume(host: Host, at: int, data: bytes) -> None:
    host.file(VOLUME).parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(host.file(VOLUME), os.O_WRONLY | os.O_CREAT), "wb") as stream:
        stream.truncate(SIZE)
        stream.seek(at)
        stream.write(data)


def punch_volume(host: Host, at: int) -> None:
    subprocess.run(["fallocate", "-p", "-o", str(at), "-l", "300000", host.file(VOLUME)], check=True)


def name_of(day: int) -> str:
    return f"acme/web/{VOLUME}/202612{day:02}T161500Z-aaaa"


@pytest.mark.root
async def test_each_of_many_backups_is_what_the_volume_was_though_only_changes_are_read(
    sharing: Host, there: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, read, was = random.Random(7), list[int](), dict[str, bytes]()
    whole = PatientReader.read

    def counted(self: PatientReader, offset: int, count: int) -> bytes:
        read.append(count)
        return whole(self, offset, count)

    monkeypatch.setattr(PatientReader, "read", counted)
    write_volume(sharing, 0, chance.randbytes(SIZE - 3 * CHUNK_BYTES))
    for day in range(1, 9):
        record = cloned(sharing)
        await sharing.backups.save(name_of(day), record, "data")
        was[name_of(day)] = sharing.content(VOLUME)
        assert len(bases(sharing)) == 1, "of the last one only"
        (sharing.snapshots / SNAPSHOT).unlink()
        if day == 1:
            assert sum(read) >= SIZE - 3 * CHUNK_BYTES
            read.clear()
        for _ in range(day % 4):
            write_volume(
                sharing, chance.randrange(SIZE - CHUNK_BYTES), chance.randbytes(chance.choice([7, CHUNK_BYTES]))
            )
        if day % 3 == 0:
            punch_volume(sharing, chance.randrange(SIZE))
    assert 0 < sum(read) < 7 * SIZE // 2
    for backup, content in was.items():
        await there.backups.restore(backup, VOLUME)
        assert there.content(VOLUME) == content
        there.file(VOLUME).unlink()


@pytest.mark.root
async def test_backup_is_compared_with_the_last_one_and_with_no_other(sharing: Host, there: Host) -> None:
    write_volume(sharing, 0, b"a" * SIZE)
    await sharing.backups.save(name_of(1), cloned(sharing), "data")
    await there.backups.save(name_of(2), there.snapshot(b"b" * SIZE), "data")  # it was at another node, and came back
    await sharing.backups.save(name_of(3), cloned(sharing), "data")
    for day, content in ((2, b"b" * SIZE), (3, b"a" * SIZE)):
        await there.backups.restore(name_of(day), VOLUME)
        assert there.content(VOLUME) == content
        there.file(VOLUME).unlink()


@pytest.mark.root
async def test_nothing_is_kept_to_compare_with_where_the_disk_has_no_room(sharing: Host) -> None:
    write_volume(sharing, 0, b"a" * SIZE)
    await sharing.backups.save(name_of(1), cloned(sharing), "data")
    [kept] = bases(sharing)
    assert kept.read_bytes() == sharing.content(VOLUME)
    sharing.backups = sharing.backups_with(floor_bytes=1 << 60)
    await sharing.backups.save(name_of(2), cloned(sharing), "data")
    assert bases(sharing) == []


@pytest.mark.root
async def test_backup_of_a_volume_that_is_gone_meanwhile_leaves_nothing_where_it_was(sharing: Host) -> None:
    write_volume(sharing, 0, b"a" * SIZE)
    record = cloned(sharing)
    shutil.rmtree(sharing.file(VOLUME).parent)
    await sharing.backups.save(BACKUP, record, "data")
    assert not sharing.file(VOLUME).parent.exists()
