"""Facts about backups that nobody orders: when they are due, and that they come once, over deaths and failures."""

import itertools
import logging
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import msgspec
import pytest

from hawker.api.contract.app import CREATE_APP, CreateAppRequest
from hawker.api.contract.volume import CREATE_BACKUP
from hawker.backup.format import saved_at
from hawker.fair.table import BACKUPS
from hawker.fsm import journal
from hawker.ids import VolumeId
from hawker.record.move import OPEN_MOVE_OF, MovePointer
from hawker.record.volume import VOLUMES
from hawker.sim.node.crash_points import Death
from hawker.sim.node.fake_host import ScriptedFailure
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.time_window import DAY_S, TimeWindow
from hawker.volume.backup_schedule import is_due, share_of
from hawker.volume.flows import VOLUME_BACKUP, SendBackup
from tests.volume.conftest import LOOKS_EVERY_S
from tests.volume.shelf import Shelf, of
from tests.worker.invariants import check_at_rest

VOLUME = VolumeId("vol_0123456789abcdef")
MIDNIGHT = 20_000 * DAY_S
HOUR_S = 3600.0
NIGHT = TimeWindow(1 * HOUR_S, 4 * HOUR_S)


def dues(last: float, every_s: float, window: TimeWindow | None, days: int) -> list[float]:
    """When one is begun, if that is looked at every ten minutes."""
    found = []
    for step in range(days * 144):
        now = MIDNIGHT + step * 600
        if is_due(VOLUME, last, now, every_s, window):
            found.append(now)
            last = now
    return found


@pytest.mark.parametrize(("every_s", "count"), [(DAY_S, 10), (6 * HOUR_S, 40), (7 * DAY_S, 1)])
def test_each_period_has_one_moment(every_s: float, count: int) -> None:
    found = dues(MIDNIGHT - 600, every_s, None, 10)
    assert abs(len(found) - count) <= 1
    assert {later - earlier for earlier, later in itertools.pairwise(found)} <= {every_s}


def test_missed_backup_is_made_up_for_once_and_at_once() -> None:
    assert is_due(VOLUME, MIDNIGHT - 9 * DAY_S, MIDNIGHT, DAY_S, None)
    assert not is_due(VOLUME, MIDNIGHT, MIDNIGHT + 1, DAY_S, None)


def test_a_window_has_one_backup_a_day_and_none_is_begun_outside() -> None:
    found = dues(MIDNIGHT - DAY_S, DAY_S, NIGHT, 10)
    assert len(found) == 10
    assert all(NIGHT.opened(at) is not None for at in found)


def test_a_week_within_a_window_is_a_week() -> None:
    found = dues(MIDNIGHT - 7 * DAY_S, 7 * DAY_S, NIGHT, 22)
    assert [later - earlier for earlier, later in itertools.pairwise(found)] == [7 * DAY_S] * 3


def test_moments_of_volumes_lie_apart() -> None:
    shares = sorted(share_of(VolumeId(f"vol_{number:016x}")) for number in range(1000))
    tenths = [sum(low <= share < low + 0.1 for share in shares) for low in (0.0, 0.3, 0.6, 0.9)]
    assert all(60 < count < 140 for count in tenths)


def test_a_name_says_when_its_backup_was_begun() -> None:
    assert saved_at("acme/web/vol_a/19700102T000001Z-aaaa") == saved_at("vol_a/19700102T000001Z-bbbb") == DAY_S + 1
    assert saved_at("acme/web/vol_a/yesterday") is None


@pytest.fixture
def stall(tmp_path: Path) -> MemoryWorld:
    """One that backs up every day, and reads nothing of it again by itself."""
    passphrase = tmp_path / "passphrase"
    return MemoryWorld(
        tmp_path,
        reconcile_every_s=LOOKS_EVERY_S,
        backup_every_s=DAY_S,
        backup_verify_percent=0,
        backup_url=str(tmp_path / "place"),
        backup_passphrase_file=passphrase,
    )


@pytest.fixture
async def daily(stall: MemoryWorld, worker: SimWorker) -> AsyncIterator[Shelf]:
    yield Shelf(stall, worker)


def count_of(shelf: Shelf, volume_id: str) -> int:
    return sum(f"/{volume_id}/" in backup for backup in shelf.world.backups.kept)


@pytest.mark.anyio
async def test_a_volume_is_backed_up_each_day_unless_it_wants_none(daily: Shelf) -> None:
    volume_id = await daily.written()
    other = await daily.written(auto_backup_enabled=False)
    for day in (1, 2, 3):
        await daily.world.clock.sleep(DAY_S)
        assert count_of(daily, volume_id) == day
    assert count_of(daily, other) == 0
    assert set(daily.world.backups.sent.values()) == {1}


@pytest.mark.anyio
async def test_restarts_neither_repeat_nor_lose_a_backup(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        shelf = Shelf(stall, worker)
        volume_id = await shelf.written()
        await stall.clock.sleep(DAY_S)
    for _ in range(3):
        async with stall.open() as worker:
            await stall.clock.sleep(600)
            assert count_of(shelf, volume_id) == 1
    await stall.clock.sleep(4 * DAY_S)
    async with stall.open() as worker:
        await stall.clock.sleep(600)
        assert count_of(shelf, volume_id) == 2, "days without a daemon are made up for once"


@pytest.mark.anyio
@pytest.mark.parametrize("step", ["await_snapshot", "send"])
async def test_a_daemon_that_dies_in_a_scheduled_backup_makes_it_once(stall: MemoryWorld, step: str) -> None:
    stall.crash_points.burns_in = f"volume_backup.{step} after"
    with pytest.raises(Death):
        async with stall.open() as worker:
            await worker.app()
            await Shelf(stall, worker).written()
            await stall.clock.sleep(DAY_S + 600)
    stall.crash(keep=0)
    stall.crash_points.burns_in = None
    async with stall.open() as worker:
        await stall.clock.sleep(1200)
        assert list(stall.backups.sent.values()) == [1]
        await worker.at_rest()
        check_at_rest(stall)


@pytest.mark.anyio
async def test_a_backup_that_failed_is_tried_again_after_an_hour_and_not_before(daily: Shelf) -> None:
    volume_id = await daily.written()
    daily.world.copies.troubles += [ScriptedFailure("take", after=False)] * 5
    await daily.world.clock.sleep(DAY_S)
    assert count_of(daily, volume_id) == 1
    runs = [run for run in journal.newest(daily.worker.store) if run.flow == VOLUME_BACKUP.name]
    assert [run.state for run in runs] == ["done", "failed"]
    assert 3600 <= runs[0].accepted_at - (runs[1].ended_at or 0) <= 3900


@pytest.mark.anyio
async def test_a_backup_ordered_by_hand_counts(daily: Shelf) -> None:
    volume_id = await daily.written()
    await daily.worker.api.call(CREATE_BACKUP, params=of(volume_id))
    late_s = share_of(volume_id) * DAY_S
    left_s = (late_s - daily.world.clock.now()) % DAY_S
    await daily.world.clock.sleep(left_s - 600)
    assert count_of(daily, volume_id) == 1
    await daily.world.clock.sleep(1200)
    assert count_of(daily, volume_id) == 2


def under_way(shelf: Shelf) -> list[str]:
    runs = [run for run in journal.open_runs(shelf.worker.store) if run.flow == VOLUME_BACKUP.name]
    return [msgspec.msgpack.decode(run.input, type=SendBackup).backup for run in runs]


@pytest.mark.anyio
async def test_no_more_backups_are_begun_than_run_and_no_organization_has_them_all(
    daily: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "hawker")  # thousands of failures, each with its stack, are half of the time
    await daily.worker.api.call(CREATE_APP, body=CreateAppRequest(name="other", org_slug="acme"))
    for number in range(5):
        await daily.written(name=f"a{number}")
    await daily.written(name="b", app="other")
    daily.world.backups.troubles += [ScriptedFailure("save", after=False)] * 10_000
    most = Counter[str]()
    for _ in range(144):
        await daily.world.clock.sleep(600)
        begun = Counter(name.partition("/")[0] for name in under_way(daily))
        assert begun.total() <= BACKUPS.total
        most |= begun
    assert most == {"personal": BACKUPS.each, "acme": 1}
    daily.world.backups.troubles.clear()
    await daily.world.clock.sleep(DAY_S)
    assert {name.split("/")[2] for name in daily.world.backups.kept} == set(await daily.list()) | {
        volume.id for _, volume in daily.worker.store.scan(VOLUMES) if volume.app == "other"
    }


@pytest.mark.anyio
async def test_a_volume_that_moves_is_left_alone_until_it_has_moved(daily: Shelf) -> None:
    volume_id = await daily.written()
    await daily.worker.store.write(lambda tx: tx.put(OPEN_MOVE_OF, volume_id, MovePointer(move="m")))
    await daily.world.clock.sleep(DAY_S)
    assert count_of(daily, volume_id) == 0
    await daily.worker.store.write(lambda tx: tx.delete(OPEN_MOVE_OF, volume_id))
    await daily.world.clock.sleep(600)
    assert count_of(daily, volume_id) == 1


@pytest.mark.anyio
async def test_prune_that_takes_days_keeps_no_backup_from_its_moment(daily: Shelf) -> None:
    backups, volume_id = daily.world.backups, await daily.written()
    backups.prunes_held = anyio.Event()
    await daily.world.clock.sleep(3 * DAY_S)
    assert (backups.pruned, count_of(daily, volume_id)) == (1, 3)
    backups.prunes_held.set()
    await daily.world.clock.sleep(2 * HOUR_S)
    assert backups.pruned > 1


@pytest.mark.anyio
async def test_backups_are_thinned_out_by_themselves_also_after_a_failure(daily: Shelf) -> None:
    await daily.written()
    daily.world.backups.troubles.append(ScriptedFailure("prune", after=False))
    await daily.world.clock.sleep(3 * HOUR_S)
    assert daily.world.backups.pruned >= 1
