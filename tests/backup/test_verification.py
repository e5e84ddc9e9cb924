"""Facts about the share of a repository that is read on each day, and what is said of backups then."""

import os
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

import pytest

from hawker.archive.directory import DirectoryBackend
from hawker.backup.at_work import BACKUP_LEASE_S
from hawker.backup.checks import CLOCKS_S, BackupCheck, BackupChecks, BackupShareReport
from hawker.backup.format import CHUNK_BYTES, SEGMENT_BYTES, BackupManifest
from hawker.backup.repository import BackupRepository
from hawker.backup.transfer import save
from hawker.backup.verification import verify_share
from hawker.clock import ManualClock
from hawker.errors import Unavailable
from hawker.time_window import DAY_S
from tests.backup.conftest import ABOUT, PASSPHRASE, files_below

pytestmark = pytest.mark.anyio
NOW = 1_800_000_000.0
FIRST, SECOND, OTHER = (
    f"acme/web/{volume}/202611{day}T030000Z-aaaa" for volume, day in (("vol_a", 20), ("vol_a", 21), ("vol_b", 21))
)


class Place:
    """A repository with two backups of one volume, which share a segment, and one of another volume."""

    def __init__(self, root: Path) -> None:
        self.kept, self._root = root / "objects", root
        self.clock = ManualClock(NOW)
        self.repository = self.node("one")

    def node(self, name: str) -> BackupRepository:
        return BackupRepository(DirectoryBackend(self.kept), self._root / name, lambda: PASSPHRASE, self.clock)

    async def fill(self) -> None:
        one, both = os.urandom(9 * CHUNK_BYTES), os.urandom(SEGMENT_BYTES)
        before = await self.save(FIRST, both + one, None)
        self.shared = set(files_below(self.kept / "packs"))
        await self.save(SECOND, both + os.urandom(9 * CHUNK_BYTES), before)
        await self.save(OTHER, os.urandom(5 * CHUNK_BYTES + 7), None)

    async def save(self, backup: str, content: bytes, before: BackupManifest | None) -> BackupManifest:
        volume = self._root / "volume"
        put(volume, content)
        return await save(self.repository, volume, backup, ABOUT, before)

    async def verify(
        self, percent: float = 100, rest: Callable[[int], Awaitable[None]] | None = None
    ) -> BackupShareReport:
        return await verify_share(self.repository, self.clock.now(), percent, rest or _go_on)

    async def checks(self) -> dict[str, BackupCheck]:
        return (await self.repository.checks()).backups


async def _go_on(read_bytes: int) -> None:
    assert read_bytes > 0


def put(file: Path, content: bytes) -> None:
    file.write_bytes(content)


def flip(file: Path) -> bytes:
    """One bit in the middle; what was there."""
    good = file.read_bytes()
    at = len(good) // 2
    file.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    return good


@pytest.fixture
async def place(tmp_path: Path) -> Place:
    """Each of its packs is of another part. Names are random: about one repository in forty has two in one part."""
    for attempt in count():
        root = tmp_path / str(attempt)
        root.mkdir()
        made = Place(root)
        await made.fill()
        packs = files_below(made.kept / "packs")
        if len({pack.name[:2] for pack in packs}) == len(packs):
            return made
    raise AssertionError("unreachable")


async def test_backups_are_verified_once_a_day_and_by_whichever_node_looks_first(place: Place) -> None:
    report = await place.verify()
    assert (report.parts, report.packs, report.damaged) == (256, len(files_below(place.kept / "packs")), ())
    assert report.read_bytes == sum(file.stat().st_size for file in files_below(place.kept / "packs"))
    assert {name: check.verified_at for name, check in (await place.checks()).items()} == dict.fromkeys(
        (FIRST, SECOND, OTHER), NOW
    )
    again = await verify_share(place.node("two"), NOW + DAY_S - 1, 100, _go_on)
    assert (again.parts, again.packs) == (0, 0)
    place.clock.advance(DAY_S)
    assert (await place.verify()).parts == 256
    assert {check.verified_at for check in (await place.checks()).values()} == {NOW + DAY_S}


async def test_every_backup_is_verified_once_all_parts_had_their_day_and_not_before(place: Place) -> None:
    packs, days = 0, 16
    for day in range(days):
        packs += (await place.verify(100 / days)).packs  # 16 of 256 parts: with more, the last day reads some again
        if day == 0:
            assert packs < len(files_below(place.kept / "packs")) or packs == 0
        place.clock.advance(DAY_S)
    assert packs == len(files_below(place.kept / "packs")), "each once"
    assert all(check.verified_at is not None for check in (await place.checks()).values())


async def test_flipped_bit_in_a_pack_is_found_and_named_for_each_backup_that_has_it(place: Place) -> None:
    [shared] = [file for file in place.shared if file.stat().st_size > SEGMENT_BYTES // 2]
    good = flip(shared)
    report = await place.verify()
    assert [name for name, _ in report.found] == [name for name, _ in report.damaged] == [FIRST, SECOND]
    assert all(shared.name in wrong for _, wrong in report.found)
    checks = await place.checks()
    assert checks[OTHER].found is None and checks[OTHER].verified_at == NOW
    assert checks[FIRST].found is not None and checks[SECOND].found is not None
    assert (await place.verify()).damaged == report.damaged, "it stays known without another look"
    put(shared, good)
    place.clock.advance(DAY_S)
    assert (await place.verify()).damaged == (), "all was read again and is whole"


@pytest.mark.parametrize("kind", ["packs", "segments", "backups"])
async def test_object_of_any_kind_that_changed_or_is_gone_is_damage(place: Place, kind: str) -> None:
    for file in files_below(place.kept / kind):
        good = flip(file)
        found = await place.verify()
        assert found.found, f"a flipped bit in {file} is not found"
        file.unlink()
        place.clock.advance(DAY_S)
        if kind != "backups":
            assert (await place.verify()).found, f"that {file} is gone is not found"
        put(file, good)
        place.clock.advance(DAY_S)
        assert (await place.verify()).damaged == ()
        place.clock.advance(DAY_S)


async def test_next_verification_goes_on_where_a_killed_one_was(place: Place) -> None:
    """Each time the second pack is the last that it reads: the first is not read again."""
    whole, reads, lives = len(files_below(place.kept / "packs")), 0, 0

    async def die(read_bytes: int) -> None:
        nonlocal reads
        reads += 1
        if reads % 2 == 0:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        await place.verify(100, die)
    while lives < whole:
        place.clock.advance(1)
        try:
            await place.verify(100, die)
        except RuntimeError:
            lives += 1
            continue
        break
    assert reads == 2 * whole - 1 and lives == whole - 2
    assert all(check.verified_at is not None for check in (await place.checks()).values())


async def test_part_that_a_killed_one_did_not_end_counts_as_not_read(place: Place) -> None:
    async def die(read_bytes: int) -> None:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        await place.verify(100, die)
    assert {check.verified_at for check in (await place.checks()).values()} == {None}


async def test_two_nodes_do_not_verify_at_once_and_a_killed_one_bars_for_an_hour(place: Place) -> None:
    other = place.repository.verifying()
    await other.__aenter__()
    with pytest.raises(Unavailable, match="by another node"):
        await place.verify()
    place.clock.advance(BACKUP_LEASE_S + CLOCKS_S + 1)
    assert (await place.verify()).parts == 256


async def test_backup_that_is_made_meanwhile_is_not_called_verified(place: Place) -> None:
    """Its packs may lie in a part that was read before it was there."""
    late = f"acme/web/vol_c/{SECOND.rpartition('/')[2]}"
    done = False

    async def make(read_bytes: int) -> None:
        nonlocal done
        if not done:
            done = True
            await place.save(late, os.urandom(3 * CHUNK_BYTES), None)

    await place.verify(100, make)
    assert late not in await place.checks()
    place.clock.advance(60)
    await place.verify()
    assert late not in await place.checks(), "nothing is due on that day"
    place.clock.advance(DAY_S)
    await place.verify()
    assert (await place.checks())[late].verified_at == NOW + 60 + DAY_S


async def test_backup_that_is_removed_meanwhile_is_no_damage_and_is_forgotten(place: Place) -> None:
    await place.verify()
    place.clock.advance(DAY_S)
    removed = False

    async def remove(read_bytes: int) -> None:
        nonlocal removed
        if not removed:
            removed = True
            for backup in (FIRST, SECOND, OTHER):
                await place.repository.remove_backup(backup)
            for file in files_below(place.kept / "packs"):
                file.unlink()

    assert (await place.verify(100, remove)).damaged == ()
    place.clock.advance(DAY_S)
    await place.verify()
    assert await place.checks() == {}


async def test_record_that_cannot_be_read_says_nothing_and_goes(place: Place) -> None:
    await place.verify()
    for file in files_below(place.kept / "verified"):
        put(file, b"rot")
    assert await place.repository.checks() == BackupChecks()
    assert (await place.verify()).parts == 256
    assert len(files_below(place.kept / "verified")) == 1
