"""Backups of a volume whose file system shares blocks: only what was written since the last one is read, and whatever
was written, each backup restores bit for bit."""

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.backup.format import CHUNK_BYTES, SEGMENT_BYTES, BackupManifest
from hawker.backup.repository import BackupRepository
from hawker.backup.transfer import restore, save
from hawker.host.extents import SharedFiles
from hawker.host.unreadable import FileRange
from tests.backup.conftest import ABOUT, SIZE, bytes_of, files_below
from tests.fixtures.sharing_disk import KINDS, sharing_disk
from tests.short_form import short_form

pytestmark = pytest.mark.anyio
FIRST, SECOND = (f"acme/web/vol_a/2026112{day}T161500Z-aaaa" for day in (3, 4))
BACKUPS = 5


@pytest.fixture(scope="module", params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with sharing_disk(tmp_path_factory.mktemp("disk"), request.param) as root:
        yield root


@pytest.mark.root
@pytest.mark.parametrize("seed", short_form(range(3), lambda seed: seed == 0, "one run of writes is the short form"))
async def test_writes_between_snapshots_restore_bit_for_bit(
    local: BackupRepository, disk: Path, tmp_path: Path, seed: int
) -> None:
    chance, file, base, copy = random.Random(seed), disk / "volume", disk / "base", disk / "copy"
    file.write_bytes(chance.randbytes(SEGMENT_BYTES + 5 * CHUNK_BYTES + 4096))
    base.unlink(missing_ok=True)
    made = list[tuple[BackupManifest, bytes]]()
    for number in range(BACKUPS):
        clone(file, copy)
        name = f"acme/web/vol_a/2026112{number}T161500Z-aaaa"
        parent = made[-1][0] if made else None
        now = await save(local, copy, name, ABOUT, parent, base=base if made else None)
        made.append((now, bytes_of(copy)))
        copy.rename(base)
        write(file, chance)
    for manifest, content in made:
        await restore(local, manifest, tmp_path / "again")
        assert bytes_of(tmp_path / "again") == content
    assert sum(manifest.sent_bytes for manifest, _ in made[1:]) < (BACKUPS - 1) * made[0][0].sent_bytes


def clone(file: Path, copy: Path) -> None:
    subprocess.run(["cp", "--reflink=always", str(file), str(copy)], check=True)


def write(file: Path, chance: random.Random) -> None:
    """A few writes as a file system makes them: data, zeros, what is there already, discards, and now and then an
    extension."""
    fd = os.open(file, os.O_RDWR)
    try:
        for _ in range(chance.randrange(6)):
            size = os.fstat(fd).st_size
            at, count = chance.randrange(size - 1), chance.choice([1, 4096, CHUNK_BYTES, 3 * CHUNK_BYTES + 5])
            count = min(count, size - at)
            match chance.randrange(6):
                case 0:
                    os.pwrite(fd, bytes(count), at)
                case 1:
                    os.pwrite(fd, os.pread(fd, count, at), at)
                case 2:
                    punch = ["fallocate", "-p", "-o", str(at), "-l", str(count), f"/proc/self/fd/{fd}"]
                    subprocess.run(punch, check=True, pass_fds=[fd])
                case 3 if size < 3 * SEGMENT_BYTES:
                    os.ftruncate(fd, size + chance.choice([4096, SEGMENT_BYTES]))
                case _:
                    os.pwrite(fd, chance.randbytes(count), at)
    finally:
        os.close(fd)


def told(*ranges: FileRange) -> type[SharedFiles]:
    """That the files differ there and nowhere else."""

    class Told(SharedFiles):
        def differing(self, start: int, count: int) -> list[FileRange]:
            return [each for each in ranges if start <= each.offset < start + count]

    return Told


def change(volume: Path, *offsets: int) -> None:
    with volume.open("r+b") as file:
        for at in offsets:
            file.seek(at)
            file.write(b"!")


async def test_chunks_whose_blocks_are_those_of_the_last_backup_are_not_read(
    local: BackupRepository, volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is played keeps quiet about a byte, and so shows that nobody looks."""
    first, base = await save(local, volume, FIRST, ABOUT, None), tmp_path / "base"
    shutil.copy(volume, base)
    change(volume, 5, CHUNK_BYTES + 9)
    monkeypatch.setattr("hawker.backup.transfer.SharedFiles", told(FileRange(CHUNK_BYTES + 9, 1)))
    second = await save(local, volume, SECOND, ABOUT, first, base=base)
    await restore(local, second, tmp_path / "again")
    change(base, CHUNK_BYTES + 9)
    assert bytes_of(tmp_path / "again") == bytes_of(base)
    assert (second.stored_bytes, second.filled) == (first.stored_bytes, first.filled)
    assert second.sent_bytes < 2 * CHUNK_BYTES


@pytest.mark.parametrize("offset", [0, 2 * SEGMENT_BYTES + CHUNK_BYTES - 1, SIZE - 1], ids=["data", "hole", "end"])
async def test_byte_that_was_written_anywhere_is_saved(
    local: BackupRepository, volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    first, base = await save(local, volume, FIRST, ABOUT, None), tmp_path / "base"
    shutil.copy(volume, base)
    change(volume, offset)
    monkeypatch.setattr("hawker.backup.transfer.SharedFiles", told(FileRange(offset, 1)))
    await restore(local, await save(local, volume, SECOND, ABOUT, first, base=base), tmp_path / "again")
    assert bytes_of(tmp_path / "again") == bytes_of(volume)


async def test_segments_whose_chunks_are_not_known_any_more_are_read_whole(
    local: BackupRepository, kept: Path, volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, base = await save(local, volume, FIRST, ABOUT, None), tmp_path / "base"
    shutil.copy(volume, base)
    for segment in files_below(kept / "segments"):
        segment.unlink()
    change(volume, 0, SIZE - 1)
    monkeypatch.setattr("hawker.backup.transfer.SharedFiles", told(FileRange(0, 1), FileRange(SIZE - 1, 1)))
    await restore(local, await save(local, volume, SECOND, ABOUT, first, base=base), tmp_path / "again")
    assert bytes_of(tmp_path / "again") == bytes_of(volume)
