"""Who works in a repository counts until the moment that it said, and stops before that."""

from pathlib import Path

import pytest

from hawker.archive.directory import DirectoryBackend
from hawker.backup.at_work import BACKUP_LEASE_S
from hawker.backup.checks import CLOCKS_S
from hawker.backup.prune import prune
from hawker.backup.repository import BackupRepository
from hawker.clock import ManualClock, SystemClock
from hawker.errors import Unavailable
from tests.backup.conftest import PASSPHRASE, opened

pytestmark = pytest.mark.anyio
NOW = 1_800_000_000.0


async def test_writer_that_was_killed_holds_the_repository_for_an_hour_from_when_it_said_so_last(
    kept: Path, tmp_path: Path
) -> None:
    clock = ManualClock(NOW)
    repository = BackupRepository(DirectoryBackend(kept), tmp_path / "s", lambda: PASSPHRASE, clock)
    writer = repository.writing()
    keep_on = await writer.__aenter__()
    for _ in range(5):
        clock.advance(BACKUP_LEASE_S - CLOCKS_S - 1)
        await keep_on()
    clock.advance(BACKUP_LEASE_S + CLOCKS_S - 1)
    with pytest.raises(Unavailable, match="under way"):
        await prune(repository, clock.now())
    clock.advance(2)
    await prune(repository, clock.now())
    with pytest.raises(Unavailable, match="repeat it"):
        await keep_on()
    await writer.__aexit__(None, None, None)
    assert list((kept / "running").iterdir()) == []


@pytest.mark.parametrize("set_s", [BACKUP_LEASE_S, -BACKUP_LEASE_S])
async def test_writer_does_not_count_on_what_is_there_once_others_may_count_it_out(
    kept: Path, tmp_path: Path, set_s: float
) -> None:
    """Also where its clock of the wall was set, or one of the two stood still."""
    clock = Uneven()
    repository = BackupRepository(DirectoryBackend(kept), tmp_path / "s", lambda: PASSPHRASE, clock)
    async with repository.writing() as keep_on:
        await keep_on()
        clock.wall, clock.slept = max(0.0, set_s), max(0.0, -set_s)
        with pytest.raises(Unavailable, match="repeat it"):
            await keep_on()


class Uneven(SystemClock):
    wall = slept = 0.0

    def now(self) -> float:
        return super().now() + self.wall

    def monotonic(self) -> float:
        return super().monotonic() + self.slept


async def test_prune_whose_mark_another_took_for_one_of_a_killed_prune_bars_backups_still(
    kept: Path, tmp_path: Path
) -> None:
    """Both found a mark of a killed prune. The second removes it when the first has made its own of it."""
    first, second, writer = (opened(DirectoryBackend(kept), tmp_path / name) for name in ("1", "2", "3"))
    async with first.taken():
        (kept / "pruning").unlink()
        with pytest.raises(Unavailable, match="being pruned"):
            async with writer.writing():
                pass
        with pytest.raises(Unavailable, match="same moment"):
            async with second.taken():
                pass
    async with writer.writing():
        pass


async def test_mark_of_a_killed_backup_goes_a_day_after_it_counted(kept: Path, tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    repository = BackupRepository(DirectoryBackend(kept), tmp_path / "s", lambda: PASSPHRASE, clock)
    writer = repository.writing()
    await writer.__aenter__()
    (mark,) = (kept / "running").iterdir()
    killed = mark.read_bytes()
    await writer.__aexit__(None, None, None)
    mark.write_bytes(killed)
    for later_s, stays in ((BACKUP_LEASE_S + CLOCKS_S + 1, True), (86_400.0, False)):
        clock.advance(later_s)
        async with repository.taken():
            assert mark.exists() is stays
