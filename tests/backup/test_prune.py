"""A prune removes what no backup has and nobody may come to have, and nothing else."""

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import get_ident

import anyio
import msgspec
import pytest

from hawker.archive.backend import ArchiveBackend
from hawker.archive.directory import DirectoryBackend
from hawker.archive.failure import ArchiveDamaged
from hawker.backup.at_work import BACKUP_LEASE_S, WorkLease
from hawker.backup.checks import CLOCKS_S
from hawker.backup.format import CHUNK_BYTES, MOST_MARKS_BYTES, SEGMENT_BYTES, AtWork, BackupManifest, BackupSegment
from hawker.backup.prune import DRAFTS_KEPT_S, GRACE_S, LONGEST_BAR_S, prune, retained
from hawker.backup.repository import BackupRepository, pack_name
from hawker.backup.transfer import restore, save, verify
from hawker.clock import ManualClock, SystemClock
from hawker.errors import Unavailable
from tests.backup.conftest import ABOUT, PASSPHRASE, bytes_of, files_below, opened, stored

pytestmark = pytest.mark.anyio
NOW = 1_800_000_000.0


def names(*days: str, volume: str = "vol_a") -> list[str]:
    return [f"acme/web/{volume}/202611{day}T030000Z-aaaa" for day in days]


def test_newest_backup_the_last_of_each_day_and_of_each_week_stay() -> None:
    twice = [*names("20", "21", "22", "23", "24"), "acme/web/vol_a/20261124T230000Z-bbbb"]
    assert retained(twice, daily=2, weekly=1) == {*names("23"), twice[-1]}
    assert retained(twice, daily=1, weekly=2) == {*names("22"), twice[-1]}, "the 22nd is a Sunday"
    assert retained(names("01", "02"), daily=0, weekly=0) == set(names("02")), "the newest always stays"


def test_volume_has_its_own_retention() -> None:
    both = [*names("20", "21"), *names("01", volume="vol_b")]
    assert retained(both, daily=1, weekly=0) == {*names("21"), *names("01", volume="vol_b")}


def put(volume: Path, content: bytes) -> None:
    volume.write_bytes(content)


def change(volume: Path) -> None:
    """All that is stored of it is other bytes."""
    with volume.open("r+b") as file:
        file.write(os.urandom(9 * CHUNK_BYTES))


async def two_backups(repository: BackupRepository, volume: Path) -> bytes:
    """Of which the second has nothing of the first's segment; what the second holds."""
    first, second = names("20", "21")
    before = await save(repository, volume, first, ABOUT, None)
    change(volume)
    await save(repository, volume, second, ABOUT, before)
    return bytes_of(volume)


async def test_object_that_no_backup_has_goes_when_its_grace_is_over(
    repository: BackupRepository, volume: Path, tmp_path: Path
) -> None:
    content = await two_backups(repository, volume)
    count = len(await stored(repository))
    first, second = names("20", "21")
    one = await prune(repository, NOW, daily=1, weekly=0)
    assert (one.backups, one.objects) == ((first,), 0) and one.marked > 0
    assert await repository.backups("") == [second] and len(await stored(repository)) == count
    early = await prune(repository, NOW + GRACE_S - 1, daily=1, weekly=0)
    assert (early.objects, early.marked) == (0, one.marked)
    late = await prune(repository, NOW + GRACE_S, daily=1, weekly=0)
    assert (late.objects, late.marked) == (one.marked, 0)
    assert len(await stored(repository)) == count - one.marked
    manifest = await repository.manifest(second)
    await verify(repository, manifest, set())
    await restore(repository, manifest, tmp_path / "again")
    assert bytes_of(tmp_path / "again") == content


async def test_segment_that_a_later_backup_has_again_stays(
    local: BackupRepository, volume: Path, tmp_path: Path
) -> None:
    old = bytes_of(volume)
    await two_backups(local, volume)
    await prune(local, NOW, daily=1, weekly=0)
    put(volume, old)
    (third,) = names("22")
    await save(local, volume, third, ABOUT, None)
    await prune(local, NOW + GRACE_S, daily=7, weekly=4)
    await restore(local, await local.manifest(third), tmp_path / "again")
    assert bytes_of(tmp_path / "again") == old


async def test_prune_removes_nothing_while_a_backup_is_under_way(
    local: BackupRepository, kept: Path, volume: Path, tmp_path: Path
) -> None:
    """It may find a segment that nobody has any more, and count on it."""
    old = bytes_of(volume)
    await two_backups(local, volume)
    await prune(local, NOW, daily=1, weekly=0)
    other = opened(DirectoryBackend(kept), tmp_path / "other")
    async with other.writing():
        with pytest.raises(Unavailable, match="under way"):
            await prune(local, NOW + GRACE_S, daily=1, weekly=0)
    async with local.taken():
        with pytest.raises(Unavailable, match="being pruned"):
            await save(other, volume, names("23")[0], ABOUT, None)
        with pytest.raises(Unavailable, match="already"):
            await prune(other, NOW)
    put(volume, old)
    await save(other, volume, names("23")[0], ABOUT, None)
    await restore(other, await other.manifest(names("23")[0]), tmp_path / "again")
    assert bytes_of(tmp_path / "again") == old


async def test_of_two_prunes_that_look_at_the_same_moment_one_goes_on_and_stays_marked(
    local: BackupRepository, kept: Path, volume: Path, tmp_path: Path
) -> None:
    await two_backups(local, volume)
    other = opened(DirectoryBackend(kept), tmp_path / "other")
    async with local.taken():
        await other.keys()
        other._place.get = lambda key, most: _nobody()  # type: ignore[method-assign, assignment]  # it had looked before
        with pytest.raises(Unavailable, match="same moment"):
            async with other.taken():
                pass
        third = opened(DirectoryBackend(kept), tmp_path / "third")
        with pytest.raises(Unavailable, match="already"):
            await prune(third, NOW)
    await prune(local, NOW)


async def _nobody() -> None:
    return None


async def test_backup_that_does_not_say_so_loses_what_it_counted_on(
    local: BackupRepository, kept: Path, volume: Path, tmp_path: Path
) -> None:
    """The planted bug of prunes, and that `verify` finds what comes of it."""
    old = bytes_of(volume)
    await two_backups(local, volume)
    await prune(local, NOW, daily=1, weekly=0)
    put(volume, old)
    silent = Silent(DirectoryBackend(kept), tmp_path / "silent", lambda: PASSPHRASE, SystemClock())
    silent.before_manifest = lambda: prune(local, NOW + GRACE_S, daily=1, weekly=0)
    made = await save(silent, volume, names("23")[0], ABOUT, None)
    with pytest.raises(ArchiveDamaged):
        await verify(local, made, set())


class Silent(BackupRepository):
    """Whoever makes a backup here does not say that it is under way."""

    before_manifest: Callable[[], Awaitable[object]]

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        yield _nobody

    async def put_manifest(self, backup: str, manifest: BackupManifest) -> None:
        await self.before_manifest()
        await super().put_manifest(backup, manifest)


async def test_writer_that_died_at_work_holds_the_repository_no_longer_than_it_said(
    local: BackupRepository, kept: Path, volume: Path
) -> None:
    await two_backups(local, volume)
    running = "running/0123"
    keys = await local.keys()
    for until, refused in ((NOW * 2, True), (1.0, False)):
        said = AtWork(token="t", until=until)
        (kept / "running").mkdir(exist_ok=True)
        (kept / running).write_bytes(keys.seal(running, msgspec.msgpack.encode(said)))
        if refused:
            with pytest.raises(Unavailable, match="under way"):
                await prune(local, NOW)
        else:
            await prune(local, NOW)


async def test_prune_removes_nothing_when_a_backup_that_stays_cannot_be_read(
    local: BackupRepository, kept: Path, volume: Path
) -> None:
    await two_backups(local, volume)
    before = files_below(kept)
    file = kept / "backups" / names("21")[0]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ArchiveDamaged):
        await prune(local, NOW, daily=1, weekly=0)
    assert files_below(kept) == before


async def test_prune_that_was_cut_short_is_finished_by_the_next(
    local: BackupRepository, kept: Path, volume: Path, tmp_path: Path
) -> None:
    """At each object that it removes."""
    content = await two_backups(local, volume)
    await prune(local, NOW, daily=1, weekly=0)
    (second,) = names("21")
    for cut in range(2):
        copy = tmp_path / f"copy-{cut}"
        shutil.copytree(kept, copy)
        place = Removing(copy, cut)
        with pytest.raises(Unavailable):
            await prune(opened(place, tmp_path / "s"), NOW + GRACE_S, daily=1, weekly=0)
        place.left = 1000
        (copy / "pruning").unlink(missing_ok=True)  # as when its time is over
        again = opened(place, tmp_path / "s")
        await prune(again, NOW + GRACE_S, daily=1, weekly=0)
        await restore(again, await again.manifest(second), tmp_path / "again")
        assert bytes_of(tmp_path / "again") == content
        assert (await prune(again, NOW + 2 * GRACE_S, daily=1, weekly=0)).objects == 0


class Removing(DirectoryBackend):
    """Removes so many objects, and is gone then."""

    def __init__(self, root: Path, left: int) -> None:
        super().__init__(root)
        self.left = left

    async def remove(self, key: str) -> None:
        if not key.startswith(("segments/", "packs/")):
            return await super().remove(key)
        if self.left == 0:
            raise Unavailable("the place is gone")
        self.left -= 1
        return await super().remove(key)


async def test_prune_waits_for_a_backup_that_is_under_way_and_lets_none_begin(local: BackupRepository) -> None:
    writer = local.writing()
    await writer.__aenter__()

    async def end_it() -> None:
        with pytest.raises(Unavailable, match="being pruned"):
            while True:
                async with local.writing():
                    pass
        await writer.__aexit__(None, None, None)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end_it)
        report = await prune(local, NOW, patience_s=60)
    assert report.backups == ()
    assert (await local.marks()).at == NOW


async def test_draft_of_a_killed_writer_goes_a_day_later(local: BackupRepository, kept: Path, volume: Path) -> None:
    await two_backups(local, volume)
    before = files_below(kept)
    old, fresh = kept / "packs" / "ab" / ".abc.x1.partial", kept / "config.partial"
    for draft, age_s in ((old, DRAFTS_KEPT_S + 1), (fresh, DRAFTS_KEPT_S - 1)):
        draft.parent.mkdir(exist_ok=True)
        draft.write_bytes(b"half")
        os.utime(draft, (NOW - age_s, NOW - age_s))
    report = await prune(local, NOW)
    assert (report.objects, set(files_below(kept)) - set(before)) == (1, {fresh, kept / "marks"})


@pytest.mark.parametrize("size", [10, MOST_MARKS_BYTES + 1])
async def test_marks_that_cannot_be_read_are_made_anew(
    local: BackupRepository, kept: Path, volume: Path, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    await two_backups(local, volume)
    marked = (await prune(local, NOW, daily=1, weekly=0)).marked
    os.truncate(kept / "marks", size)
    report = await prune(local, NOW + GRACE_S, daily=1, weekly=0)
    assert (report.objects, report.marked) == (0, marked) and "marks of prunes cannot be read" in caplog.text
    assert (await prune(local, NOW + 2 * GRACE_S, daily=1, weekly=0)).objects == marked


async def test_prune_looks_through_all_segments_in_a_thread(
    local: BackupRepository, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but what it does for one that it reads: of millions that would hold up the event loop for seconds."""
    await two_backups(local, volume)
    of_segment, read = local.segment_key, local.segment
    named, asked = list[int](), list[bytes]()

    def segment_key(name: bytes) -> str:
        named.append(get_ident())
        return of_segment(name)

    async def segment(name: bytes) -> BackupSegment:
        asked.append(name)
        return await read(name)

    monkeypatch.setattr(local, "segment_key", segment_key)
    monkeypatch.setattr(local, "segment", segment)
    await prune(local, NOW, daily=1, weekly=0)
    assert named.count(get_ident()) == len(asked) > 0 and len(named) > len(asked)


class Slow(DirectoryBackend):
    """Each segment takes so long to be read, and each object so long to be removed. Something happens once, more than
    an hour later."""

    read_s = removed_s = 0.0
    then: Callable[[], Awaitable[object]] | None = None

    def __init__(self, root: Path, clock: ManualClock) -> None:
        super().__init__(root)
        self.clock = clock

    async def get(self, key: str, target: Path, most_bytes: int) -> bool:
        if key.startswith("segments/"):
            self.clock.advance(self.read_s)
        then = self.then
        if then is not None and self.clock.now() > NOW + BACKUP_LEASE_S + CLOCKS_S:
            self.then = None
            await then()
        return await super().get(key, target, most_bytes)

    async def remove(self, key: str) -> None:
        if key.startswith(("segments/", "packs/")):
            self.clock.advance(self.removed_s)
        return await super().remove(key)


@pytest.fixture
def slow(kept: Path) -> Slow:
    return Slow(kept, ManualClock(NOW))


def timed(place: Slow, scratch: Path) -> BackupRepository:
    return BackupRepository(place, scratch, lambda: PASSPHRASE, place.clock)


def put_segments(volume: Path, count: int) -> None:
    """Each has one chunk, which no other has."""
    with volume.open("wb") as file:
        file.truncate(count * SEGMENT_BYTES)
        for number in range(count):
            file.seek(number * SEGMENT_BYTES)
            file.write(os.urandom(CHUNK_BYTES))


async def test_prune_that_reads_for_hours_removes_what_is_left_over(slow: Slow, volume: Path, tmp_path: Path) -> None:
    repository = timed(slow, tmp_path / "scratch")
    put_segments(volume, 40)
    await save(repository, volume, names("20")[0], ABOUT, None)
    put_segments(volume, 40)
    await save(repository, volume, names("21")[0], ABOUT, None)
    slow.read_s = 150.0
    began = slow.clock.now()

    async def refused() -> None:
        with pytest.raises(Unavailable, match="already"):
            await prune(timed(slow, tmp_path / "other"), NOW)

    slow.then = refused
    report = await prune(repository, NOW, daily=1, weekly=0)
    assert slow.clock.now() - began >= 40 * 150.0 and slow.then is None
    assert (report.backups, report.marked) == (tuple(names("20")), 80)
    again = timed(slow, tmp_path / "again")
    assert (await prune(again, NOW + GRACE_S, daily=1, weekly=0)).objects == 80
    await verify(again, await again.manifest(names("21")[0]), set())


async def test_backup_goes_on_while_a_prune_reads_and_loses_nothing(
    local: BackupRepository, kept: Path, volume: Path, tmp_path: Path
) -> None:
    """It has again what nobody had when the prune began."""
    old = bytes_of(volume)
    await two_backups(local, volume)
    await prune(local, NOW, daily=1, weekly=0)
    put(volume, old)
    third, other = names("22")[0], opened(DirectoryBackend(kept), tmp_path / "other")
    pruner = opened(Reading(kept, lambda: save(other, volume, third, ABOUT, None)), tmp_path / "pruner")
    report = await prune(pruner, NOW + GRACE_S, daily=2, weekly=0)
    assert report.backups == () and third in await local.backups("")
    await restore(local, await local.manifest(third), tmp_path / "again")
    assert bytes_of(tmp_path / "again") == old


class Reading(DirectoryBackend):
    """Something happens once, when the first segment is read."""

    def __init__(self, root: Path, then: Callable[[], Awaitable[object]] | None) -> None:
        super().__init__(root)
        self.then = then

    async def get(self, key: str, target: Path, most_bytes: int) -> bool:
        then = self.then
        if then is not None and key.startswith("segments/"):
            self.then = None
            await then()
        return await super().get(key, target, most_bytes)


async def test_second_prune_does_not_read_beside_the_first(
    local: BackupRepository, kept: Path, volume: Path, tmp_path: Path
) -> None:
    await two_backups(local, volume)
    other = opened(DirectoryBackend(kept), tmp_path / "other")

    async def refused() -> None:
        with pytest.raises(Unavailable, match="already"):
            await prune(other, NOW)

    place = Reading(kept, refused)
    await prune(opened(place, tmp_path / "pruner"), NOW)
    assert place.then is None


class Mended(BackupRepository):
    """Something happens once a prune has read, just before it bars backups."""

    before: Callable[[], Awaitable[object]] | None = None

    @asynccontextmanager
    async def taken(self, patience_s: float = 0.0) -> AsyncIterator[WorkLease]:
        if self.before is not None:
            await self.before()
        async with super().taken(patience_s) as lease:
            yield lease


async def test_pack_of_a_segment_that_was_replaced_after_it_was_read_stays(
    place: ArchiveBackend, volume: Path, tmp_path: Path
) -> None:
    """A backup may mend a segment with packs that nobody had, and whose grace is over."""
    repository = Mended(place, tmp_path / "scratch", lambda: PASSPHRASE, SystemClock())
    put_segments(volume, 1)
    made = await save(repository, volume, names("20")[0], ABOUT, None)
    (name,) = made.names()
    chunk = (await repository.segment(name)).chunks[0]
    assert chunk is not None
    file = tmp_path / "pack"
    await repository.pack(chunk.pack, file)
    file.write_bytes(b"x" + file.read_bytes())
    other = pack_name(file)
    await repository.put_pack(file, other)
    assert (await prune(repository, NOW)).marked == 1
    moved = msgspec.structs.replace(chunk, pack=other, offset=chunk.offset + 1)
    segment = BackupSegment(chunks=(moved, *[None] * 127))
    repository.before = lambda: repository.put_segment(name, segment, anew=True)
    report = await prune(repository, NOW + GRACE_S)
    assert report.objects == 0
    await verify(repository, made, set())


async def test_prune_that_removes_for_long_leaves_the_rest_to_the_next_and_packs_to_the_end(
    slow: Slow, volume: Path, tmp_path: Path
) -> None:
    repository = timed(slow, tmp_path / "scratch")
    for day in ("20", "21"):
        put_segments(volume, 20)
        await save(repository, volume, names(day)[0], ABOUT, None)
    assert (await prune(repository, NOW, daily=1, weekly=0)).marked == 40
    slow.removed_s = LONGEST_BAR_S / 15
    first = await prune(repository, NOW + GRACE_S, daily=1, weekly=0)
    assert 0 < first.objects < 20 and first.marked == 40 - first.objects
    assert len(await repository.packs()) == 40
    second = await prune(repository, NOW + GRACE_S, daily=1, weekly=0)
    assert second.objects >= 20 - first.objects
    while (await prune(repository, NOW + GRACE_S, daily=1, weekly=0)).objects:
        pass
    assert len(await stored(repository)) == 40
    await verify(repository, await repository.manifest(names("21")[0]), set())
