"""A volume goes into a repository and comes back bit for bit, or somebody is told; only what changed is sent."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from hawker.archive.directory import DirectoryBackend
from hawker.archive.failure import ArchiveDamaged, ArchiveRefused
from hawker.backup.format import CHUNK_BYTES, SEGMENT_BYTES, BackupManifest, BackupSegment
from hawker.backup.prune import prune
from hawker.backup.repository import BackupRepository
from hawker.backup.transfer import compare, restore, save, verify
from hawker.clock import SystemClock
from hawker.errors import Unavailable, Unprocessable
from hawker.host.extents import SharedFiles
from hawker.host.sparse import allocated_bytes
from hawker.host.unreadable import FileRange, UnreadableBytes
from tests.backup import golden
from tests.backup.conftest import ABOUT, SIZE, bytes_of, files_below, opened, stored
from tests.fixtures.dying_disk import dying_disk

pytestmark = pytest.mark.anyio
FIRST, SECOND, THIRD = (f"acme/web/vol_a/2026112{day}T161500Z-aaaa" for day in (3, 4, 5))


async def test_volume_comes_back_bit_for_bit_and_sparse(
    repository: BackupRepository, volume: Path, tmp_path: Path
) -> None:
    made = await save(repository, volume, FIRST, ABOUT, None)
    assert made.size_bytes == SIZE and 8 * CHUNK_BYTES >= made.stored_bytes >= 6 * CHUNK_BYTES
    await restore(repository, await repository.manifest(FIRST), tmp_path / "again")
    assert bytes_of(tmp_path / "again") == bytes_of(volume)
    assert allocated_bytes(tmp_path / "again") <= allocated_bytes(volume)
    await verify(repository, made, set())


async def test_another_host_restores_with_the_passphrase_alone(
    local: BackupRepository, kept: Path, volume: Path, tmp_path: Path
) -> None:
    await save(local, volume, FIRST, ABOUT, None)
    other = opened(DirectoryBackend(kept), tmp_path / "elsewhere")
    await restore(other, await other.manifest(FIRST), tmp_path / "again")
    assert bytes_of(tmp_path / "again") == bytes_of(volume)


async def test_second_backup_sends_only_changed_chunks(
    repository: BackupRepository, volume: Path, tmp_path: Path
) -> None:
    first = await save(repository, volume, FIRST, ABOUT, None)
    old = bytes_of(volume)
    with volume.open("r+b") as file:
        file.seek(CHUNK_BYTES)
        file.write(b"!")
        file.seek(SEGMENT_BYTES + 7)
        file.write(b"new")
    second = await save(repository, volume, SECOND, ABOUT, first)
    assert CHUNK_BYTES < second.sent_bytes < 2 * CHUNK_BYTES  # one that is random, and one of little more than zeros
    for backup, content in ((FIRST, old), (SECOND, bytes_of(volume))):
        await restore(repository, await repository.manifest(backup), tmp_path / "again")
        assert bytes_of(tmp_path / "again") == content


async def test_unchanged_volume_sends_nothing_also_without_a_parent(repository: BackupRepository, volume: Path) -> None:
    await save(repository, volume, FIRST, ABOUT, None)
    assert (await save(repository, volume, SECOND, ABOUT, None)).sent_bytes == 0


async def test_volume_that_grew_is_saved_whole(local: BackupRepository, volume: Path, tmp_path: Path) -> None:
    first = await save(local, volume, FIRST, ABOUT, None)
    os.truncate(volume, 5 * SEGMENT_BYTES)
    with volume.open("r+b") as file:
        file.seek(5 * SEGMENT_BYTES - 3)
        file.write(b"end")
    await restore(local, await save(local, volume, SECOND, ABOUT, first), tmp_path / "again")
    assert bytes_of(tmp_path / "again") == bytes_of(volume)


async def test_hole_and_written_zeros_are_the_same(local: BackupRepository, tmp_path: Path) -> None:
    file = tmp_path / "zeros"
    file.write_bytes(bytes(SEGMENT_BYTES))
    made = await save(local, file, FIRST, ABOUT, None)
    assert (made.stored_bytes, made.sent_bytes) == (0, 0)
    await restore(local, made, tmp_path / "again")
    assert (tmp_path / "again").stat().st_blocks == 0 and (tmp_path / "again").stat().st_size == SEGMENT_BYTES


class Failing(DirectoryBackend):
    """Of its next writes, only so many succeed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.left: Iterator[int] = iter(range(0))

    async def put_new(self, key: str, file: Path) -> bool:
        if next(self.left, None) is None:
            raise Unavailable("the place is gone")
        return await super().put_new(key, file)


async def test_backup_that_was_cut_at_any_object_is_finished_by_the_next_try(volume: Path, tmp_path: Path) -> None:
    for writes in range(7):
        place = Failing(tmp_path / f"place{writes}")
        repository = opened(place, tmp_path / "scratch")
        place.left = iter(range(writes))
        made: BackupManifest | None = None
        try:
            made = await save(repository, volume, FIRST, ABOUT, None)
        except Unavailable:
            assert await repository.backups("") == [], "what was cut short is no backup"
        place.left = iter(range(100))
        again = made or await save(opened(place, tmp_path / "scratch"), volume, FIRST, ABOUT, None)
        await restore(repository, again, tmp_path / "again")
        assert bytes_of(tmp_path / "again") == bytes_of(volume)
        assert (made is None) == (writes < 6), "config, two packs, two segments, a manifest"


class FullAtASegment(DirectoryBackend):
    """Takes nothing more once a segment is there, until `emptied`."""

    full = emptied = False

    async def put_new(self, key: str, file: Path) -> bool:
        if self.full and not self.emptied:
            raise Unavailable("the place is full")
        done = await super().put_new(key, file)
        self.full |= key.startswith("segments/")
        return done


async def test_segments_that_are_there_are_not_sent_again(volume: Path, tmp_path: Path) -> None:
    place = FullAtASegment(tmp_path / "place")
    repository = opened(place, tmp_path / "scratch")
    with pytest.raises(Unavailable):
        await save(repository, volume, FIRST, ABOUT, None)
    place.emptied = True
    made = await save(repository, volume, FIRST, ABOUT, None)
    whole = await save(opened(DirectoryBackend(tmp_path / "other"), tmp_path / "way"), volume, FIRST, ABOUT, None)
    assert made.sent_bytes < whole.sent_bytes - CHUNK_BYTES // 2
    assert made.segments != whole.segments, "each repository has names of its own"


def put(volume: Path, content: bytes) -> None:
    volume.write_bytes(content)


async def test_bytes_that_are_sent_beside_each_other_are_all_counted(local: BackupRepository, volume: Path) -> None:
    put(volume, os.urandom(4 * SEGMENT_BYTES))
    assert (await save(local, volume, FIRST, ABOUT, None)).sent_bytes > 4 * SEGMENT_BYTES


async def test_equal_segments_of_a_volume_are_sent_once(local: BackupRepository, volume: Path, tmp_path: Path) -> None:
    put(volume, os.urandom(SEGMENT_BYTES) * 6)
    made = await save(local, volume, FIRST, ABOUT, None)
    assert len(await stored(local)) == 2, "one segment, and its pack"
    await restore(local, made, tmp_path / "again")
    assert bytes_of(tmp_path / "again") == bytes_of(volume)


async def test_flipped_bit_in_any_object_is_found_and_named(
    local: BackupRepository, kept: Path, volume: Path, tmp_path: Path
) -> None:
    await save(local, volume, FIRST, ABOUT, None)
    for file in files_below(kept):
        good, other = file.read_bytes(), local
        for at in (0, len(good) // 2, len(good) - 1):
            file.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
            if file.name == "config":  # the one that is read once; opening a repository takes a tenth of a second
                other = opened(DirectoryBackend(kept), tmp_path / "other")
            with pytest.raises((ArchiveDamaged, ArchiveRefused)):
                await verify(other, await other.manifest(FIRST), set())
        file.write_bytes(good)
    await verify(local, await local.manifest(FIRST), set())


async def test_missing_object_is_found(local: BackupRepository, kept: Path, volume: Path) -> None:
    made = await save(local, volume, FIRST, ABOUT, None)
    for folder in ("packs", "segments"):
        file = files_below(kept / folder)[0]
        good = file.read_bytes()
        file.unlink()
        with pytest.raises(ArchiveDamaged, match="is not there"):
            await verify(local, made, set())
        file.write_bytes(good)


async def test_a_verified_piece_is_not_read_again(local: BackupRepository, kept: Path, volume: Path) -> None:
    made, seen = await save(local, volume, FIRST, ABOUT, None), set[tuple[bytes, int]]()
    await verify(local, made, seen)
    for file in files_below(kept / "packs"):
        file.unlink()
    await verify(local, made, seen)


@pytest.mark.parametrize(
    "fields", [{"offset": -1}, {"offset": 1 << 60}, {"length": -5}, {"length": 1 << 40}, {"pack": b""}]
)
async def test_segment_that_lies_about_places_is_refused(
    local: BackupRepository, kept: Path, volume: Path, fields: dict[str, object]
) -> None:
    """Whoever has the key may write anything."""
    made = await save(local, volume, FIRST, ABOUT, None)
    name = made.names()[0]
    segment = await local.segment(name)
    lies = tuple(None if place is None else msgspec.structs.replace(place, **fields) for place in segment.chunks)
    (kept / "segments" / name.hex()[:2] / name.hex()).unlink()
    await local.put_segment(name, BackupSegment(chunks=lies))
    with pytest.raises(ArchiveDamaged):
        await verify(local, made, set())


async def test_manifest_of_a_size_that_its_segments_do_not_have_is_refused(
    local: BackupRepository, volume: Path, tmp_path: Path
) -> None:
    made = await save(local, volume, FIRST, ABOUT, None)
    lies = msgspec.structs.replace(made, size_bytes=made.size_bytes - CHUNK_BYTES)
    with pytest.raises(ArchiveDamaged):
        await restore(local, lies, tmp_path / "again")


@pytest.mark.root
async def test_file_that_its_disk_cannot_read_makes_no_backup_and_holds_up_no_prune(
    local: BackupRepository, kept: Path, tmp_path: Path
) -> None:
    with dying_disk(tmp_path) as disk:
        file = disk.root / "disk"
        file.write_bytes(os.urandom(SEGMENT_BYTES + 4 * CHUNK_BYTES))
        lost = disk.cut(file, SEGMENT_BYTES + CHUNK_BYTES)
        with pytest.raises(UnreadableBytes) as caught:
            await save(local, file, FIRST, ABOUT, None)
        assert caught.value.offset == lost
    assert await local.backups("") == [] and list((kept / "running").iterdir()) == []
    await prune(local, SystemClock().now())


async def test_empty_file_is_no_volume(local: BackupRepository, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(Unprocessable):
        await save(local, tmp_path / "empty", FIRST, ABOUT, None)


async def test_a_repository_that_an_older_version_wrote_is_read(tmp_path: Path) -> None:
    shutil.copytree(golden.PLACE, tmp_path / "place")
    repository = opened(DirectoryBackend(tmp_path / "place"), tmp_path / "scratch")
    assert await repository.backups("") == [golden.FIRST, golden.SECOND]
    for backup, second in ((golden.FIRST, False), (golden.SECOND, True)):
        await restore(repository, await repository.manifest(backup), tmp_path / "again")
        assert bytes_of(tmp_path / "again") == golden.content(second)


async def test_restored_file_that_is_not_what_was_saved_is_found(
    local: BackupRepository, volume: Path, tmp_path: Path
) -> None:
    made = await save(local, volume, FIRST, ABOUT, None)
    again = tmp_path / "again"
    await restore(local, made, again)
    await compare(local, made, again)
    good = bytes_of(again)
    for at in (0, len(good) // 2, len(good) - 1):
        put(again, good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(ArchiveDamaged, match="differs"):
            await compare(local, made, again)
    put(again, good[:-1])
    with pytest.raises(ArchiveDamaged, match="not as long"):
        await compare(local, made, again)


def spoil(file: Path) -> None:
    """One bit in its middle."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [spoil, Path.unlink], ids=["flipped", "missing"])
@pytest.mark.parametrize("what", ["packs", "segments"])
async def test_backup_after_damage_writes_anew_what_the_volume_still_has(
    local: BackupRepository, kept: Path, volume: Path, tmp_path: Path, what: str, damage: Callable[[Path], None]
) -> None:
    first = await save(local, volume, FIRST, ABOUT, None)
    for file in files_below(kept / what):
        damage(file)
    with pytest.raises(ArchiveDamaged):
        await verify(local, first, set())
    second = await save(local, volume, SECOND, ABOUT, first, doubted=True)
    assert second.sent_bytes > 0
    for each in (first, second):
        await verify(local, each, set())
        await restore(local, each, tmp_path / "again")
        assert bytes_of(tmp_path / "again") == bytes_of(volume)
    again = await save(local, volume, THIRD, ABOUT, second, doubted=True)
    assert again.sent_bytes == 0


async def test_earlier_backup_gets_back_what_a_changed_volume_still_has(
    local: BackupRepository, kept: Path, volume: Path, tmp_path: Path
) -> None:
    """Of a segment that was written to, the chunk that is lost was not."""
    old = bytes_of(volume)
    first = await save(local, volume, FIRST, ABOUT, None)
    before = set(files_below(kept / "packs"))
    with volume.open("r+b") as file:
        file.write(b"!")
    second = await save(local, volume, SECOND, ABOUT, first)
    (fresh,) = set(files_below(kept / "packs")) - before
    changed = bytes_of(volume)
    with volume.open("r+b") as file:
        file.seek(CHUNK_BYTES)
        file.write(b"?")
    spoil(fresh)
    third = await save(local, volume, THIRD, ABOUT, second, doubted=True)
    for backup, content in ((first, old), (second, changed), (third, bytes_of(volume))):
        await verify(local, backup, set())
        await restore(local, backup, tmp_path / "again")
        assert bytes_of(tmp_path / "again") == content


async def test_damage_of_blocks_that_are_gone_stays_damage_and_is_in_no_later_backup(
    local: BackupRepository, kept: Path, volume: Path, tmp_path: Path
) -> None:
    first = await save(local, volume, FIRST, ABOUT, None)
    for file in files_below(kept / "packs"):
        spoil(file)
    with volume.open("r+b") as stream:
        stream.write(os.urandom(CHUNK_BYTES))
    second = await save(local, volume, SECOND, ABOUT, first, doubted=True)
    await verify(local, second, set())
    with pytest.raises(ArchiveDamaged):
        await verify(local, first, set())


async def test_segment_that_cannot_be_read_does_not_stop_the_next_backup(
    local: BackupRepository, kept: Path, volume: Path
) -> None:
    """Nobody knows of the damage yet."""
    first = await save(local, volume, FIRST, ABOUT, None)
    for file in files_below(kept / "segments"):
        spoil(file)
    with volume.open("r+b") as stream:
        stream.write(b"!")
        stream.seek(SIZE - 1)
        stream.write(b"!")
    await verify(local, await save(local, volume, SECOND, ABOUT, first), set())


def told(*same: bool) -> type[SharedFiles]:
    """That segments differ nowhere, or everywhere."""

    class Told(SharedFiles):
        def differing(self, start: int, count: int) -> list[FileRange]:
            number = start // SEGMENT_BYTES
            return [] if number < len(same) and same[number] else [FileRange(start, count)]

    return Told


async def test_segment_whose_blocks_are_those_of_the_last_backup_is_not_read(
    local: BackupRepository, volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is played lies about the first segment, and so shows that nobody looks."""
    first, old, base = await save(local, volume, FIRST, ABOUT, None), bytes_of(volume), tmp_path / "base"
    shutil.copy(volume, base)
    with volume.open("r+b") as file:
        file.write(b"!")
        file.seek(SIZE - 1)
        file.write(b"!")
    monkeypatch.setattr("hawker.backup.transfer.SharedFiles", told(True))
    second = await save(local, volume, SECOND, ABOUT, first, base=base)
    await restore(local, second, tmp_path / "again")
    assert bytes_of(tmp_path / "again") == old[:-1] + b"!"
    assert (second.stored_bytes, second.filled) == (first.stored_bytes, first.filled)
    third = await save(local, volume, THIRD, ABOUT, second, base=base, doubted=True)
    await restore(local, third, tmp_path / "again")
    assert bytes_of(tmp_path / "again") == bytes_of(volume), "where anything is doubted all is read"


async def test_last_segment_of_a_volume_that_grew_is_read_though_its_blocks_are_the_same(
    local: BackupRepository, volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, base = await save(local, volume, FIRST, ABOUT, None), tmp_path / "base"
    shutil.copy(volume, base)
    os.truncate(volume, 5 * SEGMENT_BYTES)
    monkeypatch.setattr("hawker.backup.transfer.SharedFiles", told(*[True] * 5))
    await restore(local, await save(local, volume, SECOND, ABOUT, first, base=base), tmp_path / "again")
    assert bytes_of(tmp_path / "again") == bytes_of(volume)


async def test_backup_of_an_older_version_says_too_little_to_leave_anything_unread(
    local: BackupRepository, volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = msgspec.structs.replace(await save(local, volume, FIRST, ABOUT, None), filled=b"")
    monkeypatch.setattr("hawker.backup.transfer.SharedFiles", told(*[True] * 5))
    put(volume, os.urandom(SIZE))
    await restore(local, await save(local, volume, SECOND, ABOUT, first, base=volume), tmp_path / "again")
    assert bytes_of(tmp_path / "again") == bytes_of(volume)
