"""Facts about the node's own reading of backups: by itself, after everything else, and what it remembers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.volume import CREATE_BACKUP, LIST_BACKUPS, KeptBackup
from hawker.fsm import journal
from hawker.sim.harness.loop import eventually
from hawker.sim.node.fake_host import ScriptedFailure
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.volume.backup_verification import LONGEST_REST_S, LOOKS, BackupVerification
from tests.volume.shelf import Shelf, of

pytestmark = pytest.mark.anyio
LOOK_S = LOOKS * 60.0


@pytest.fixture
def stall(tmp_path: Path) -> MemoryWorld:
    return MemoryWorld(tmp_path, backup_url=str(tmp_path / "place"), backup_passphrase_file=tmp_path / "passphrase")


@pytest.fixture
async def shelf(stall: MemoryWorld, worker: SimWorker) -> AsyncIterator[Shelf]:
    yield Shelf(stall, worker)


async def saved(shelf: Shelf) -> str:
    """A backup, by its whole name."""
    await shelf.worker.api.call(CREATE_BACKUP, params=of(await shelf.written()))
    await eventually(shelf.world.clock, lambda: bool(shelf.world.backups.kept), 600)
    [backup] = shelf.world.backups.kept
    return backup


async def listed(shelf: Shelf) -> KeptBackup:
    [backup] = await shelf.worker.api.call(LIST_BACKUPS, params=AppParams(app_name=APP))
    return backup


async def test_node_verifies_by_itself_also_after_a_failure(shelf: Shelf) -> None:
    shelf.world.backups.troubles.append(ScriptedFailure("verify", after=False))
    await shelf.world.clock.sleep(3 * LOOK_S)
    assert shelf.world.backups.verified >= 1


async def test_node_that_is_told_not_to_verify_does_not(tmp_path: Path) -> None:
    world = MemoryWorld(
        tmp_path,
        backup_url=str(tmp_path / "place"),
        backup_passphrase_file=tmp_path / "passphrase",
        backup_verify_percent=0,
    )
    async with world.open():
        await world.clock.sleep(3 * LOOK_S)
    assert world.backups.verified == 0


async def test_backup_that_was_verified_says_when_and_one_that_nobody_reads_grows_stale(shelf: Shelf) -> None:
    backup = await saved(shelf)
    assert (await listed(shelf)).verified_at is None
    shelf.world.backups.verified = 1
    shown = await listed(shelf)
    assert shown.verified_at is not None and shown.damage is None and not shown.stale
    kept = shelf.world.backups.kept
    old = f"{backup.rpartition('/')[0]}/19700101T000001Z-aaaa"
    kept[old] = kept.pop(backup)
    assert (await listed(shelf)).stale, "it was saved and read long ago"


async def test_damage_is_told_by_the_list_and_remembered_for_the_doctor(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    backup = await saved(shelf)
    shelf.world.backups.damaged[backup] = "packs/ab/cd is not what its name says"
    world, worker = shelf.world, shelf.worker
    verification = BackupVerification(worker.store, world.settings, world.clock, world.backups)
    await verification.once()
    assert list(verification.damaged()) == [(backup, "packs/ab/cd is not what its name says")]
    assert (await listed(shelf)).damage == "packs/ab/cd is not what its name says"
    assert "a backup is damaged" in caplog.text


async def test_node_rests_while_a_volume_is_backed_up_but_not_for_ever(shelf: Shelf) -> None:
    shelf.world.backups.troubles += [ScriptedFailure("save", after=False)] * 10_000
    await shelf.worker.api.call(CREATE_BACKUP, params=of(await shelf.written()))
    world, worker = shelf.world, shelf.worker
    assert list(journal.open_runs(worker.store))
    verification = BackupVerification(worker.store, world.settings, world.clock, world.backups)
    begun = world.clock.monotonic()
    await verification.once()
    assert LONGEST_REST_S <= world.clock.monotonic() - begun < 2 * LONGEST_REST_S
    world.backups.troubles.clear()
    await worker.at_rest()
    begun = world.clock.monotonic()
    await verification.once()
    assert world.clock.monotonic() == begun
