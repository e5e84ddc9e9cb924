import logging
from pathlib import Path

import pytest

from hawker.archive.archive import Archive
from hawker.archive.directory import DirectoryBackend
from hawker.archive.failure import ArchiveRefused
from hawker.errors import Unavailable
from hawker.fsm.run import State as RunState
from hawker.fsm.runner import KEEP_RUNS
from hawker.history.archivist import AGAIN_S, PARALLEL, history_resource
from hawker.ids import MachineId
from hawker.machine import State
from hawker.record.machine import ARCHIVED, DESTROYED, EVENTS
from hawker.sim.harness.loop import LoopClock
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker.reconcile import Kind

pytestmark = pytest.mark.anyio


class Moody(DirectoryBackend):
    """A place that fails as it is told to; `asked` counts what came of each call, `at_once` how many were there."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.failure: Exception | None = None
        self.spoilt: set[str] = set()
        self.asked = {"check": 0, "put": 0}
        self.inside = self.at_once = 0

    async def check(self) -> None:
        self.asked["check"] += 1
        if self.failure is not None:
            raise self.failure
        await super().check()

    async def put(self, key: str, file: Path) -> None:
        self.asked["put"] += 1
        self.inside += 1
        self.at_once = max(self.at_once, self.inside)
        try:
            await LoopClock().sleep(0.01)  # whoever a thread still works for comes in meanwhile
            if self.failure is not None:
                raise self.failure
            if key in self.spoilt:
                raise ArchiveRefused("not this one")
            await super().put(key, file)
        finally:
            self.inside -= 1


@pytest.fixture
def place(tmp_path: Path) -> Moody:
    return Moody(tmp_path / "kept")


@pytest.fixture
def stall(stall: MemoryWorld, place: Moody, tmp_path: Path) -> MemoryWorld:
    stall.archive = Archive(place, tmp_path / "staging")
    return stall


async def destroyed(worker: SimWorker, count: int = 1) -> list[MachineId]:
    made = [MachineId(await worker.stopped(metadata={"n": str(number)})) for number in range(count)]
    for machine_id in made:
        await worker.destroy(machine_id)
    for machine_id in made:
        await worker.reaches(machine_id, State.DESTROYED)
    return made


def archived(worker: SimWorker) -> list[str]:
    return [key for key, _ in worker.store.scan(ARCHIVED)]


async def later(stall: MemoryWorld, seconds: float) -> None:
    await stall.clock.sleep(seconds)


async def test_a_destroyed_machine_is_archived_and_dropped_when_it_was_kept_long_enough(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    (machine_id,) = await destroyed(worker)
    await later(stall, 2 * stall.settings.reconcile_every_s)
    assert archived(worker) == [machine_id]
    assert worker.store.count(DESTROYED) == 1 and worker.store.count(EVENTS) > 0
    await later(stall, stall.settings.destroyed_kept_s + stall.settings.reconcile_every_s)
    assert worker.store.count(DESTROYED) == worker.store.count(ARCHIVED) == worker.store.count(EVENTS) == 0
    assert stall.archive is not None
    history = await stall.archive.read(machine_id)
    assert history is not None and history.events[-1].status == "destroyed"
    assert [run.flow for run in history.runs] == ["create", "destroy"]
    assert list((stall.directory / "staging").iterdir()) == []


async def test_a_living_machine_is_not_archived(worker: SimWorker, stall: MemoryWorld, place: Moody) -> None:
    await worker.started()
    await later(stall, 3 * stall.settings.reconcile_every_s)
    assert archived(worker) == [] and place.asked["put"] == 0


async def test_a_place_that_is_away_for_days_costs_no_history(
    worker: SimWorker, stall: MemoryWorld, place: Moody, caplog: pytest.LogCaptureFixture
) -> None:
    place.failure = Unavailable("away")
    made = await destroyed(worker, 3 * PARALLEL)
    with caplog.at_level(logging.WARNING, "hawker.archivist"):
        await later(stall, 3 * stall.settings.destroyed_kept_s)
    assert "histories cannot be archived" in caplog.messages
    assert worker.store.count(DESTROYED) == len(made) and archived(worker) == []
    assert len(worker.parts.runner.list(flow="archive", active=True)) <= PARALLEL
    (finding,) = await worker.reconciler.find()
    assert (finding.kind, finding.detail) == (Kind.LATE_HISTORIES, f"{len(made)} histories wait for the archive")
    place.failure = None
    await later(stall, 2 * stall.settings.reconcile_every_s + AGAIN_S)
    assert await worker.reconciler.find() == []
    assert worker.store.count(DESTROYED) == 0
    for machine_id in made:
        assert stall.archive is not None and await stall.archive.read(machine_id) is not None


async def test_a_place_that_refuses_is_asked_again_only_now_and_then(
    worker: SimWorker, stall: MemoryWorld, place: Moody
) -> None:
    await destroyed(worker, 2 * PARALLEL)
    place.failure = ArchiveRefused("forbidden")
    place.asked["check"] = 0
    await later(stall, 3600)
    assert place.asked["put"] > 0
    assert place.asked["put"] <= PARALLEL
    assert place.asked["check"] <= 2 + 3600 / stall.settings.reconcile_every_s


@pytest.mark.long(reason="days of retries; a place that is away is the short form")
async def test_one_history_that_cannot_be_archived_holds_up_no_other(
    worker: SimWorker, stall: MemoryWorld, place: Moody
) -> None:
    (bad,) = await destroyed(worker)
    place.spoilt.add(f"{bad[:2]}/{bad}.sqlite.zst")
    good = await destroyed(worker, 2 * PARALLEL)
    await later(stall, 4 * stall.settings.reconcile_every_s)
    assert set(archived(worker)) == set(good)
    failed = worker.parts.runner.list(flow="archive", active=False)
    assert {run.resource.id: run.error for run in failed if run.state is RunState.FAILED} == {bad: "not this one"}
    await later(stall, stall.settings.destroyed_kept_s)
    assert [key for key, _ in worker.store.scan(DESTROYED)] == [bad]


@pytest.mark.long(reason="weeks of retries; days of them, in the tests beside it, are the short form")
async def test_runs_that_fail_for_weeks_drop_nothing_of_the_history(
    worker: SimWorker, stall: MemoryWorld, place: Moody
) -> None:
    (bad,) = await destroyed(worker)
    place.spoilt.add(f"{bad[:2]}/{bad}.sqlite.zst")
    await later(stall, 200 * AGAIN_S)
    assert place.asked["put"] > KEEP_RUNS
    assert len(worker.parts.runner.list(resource=history_resource(bad), limit=1000)) <= KEEP_RUNS
    place.spoilt.clear()
    await later(stall, 2 * AGAIN_S)
    assert stall.archive is not None
    history = await stall.archive.read(bad)
    assert history is not None and [run.flow for run in history.runs] == ["create", "destroy"]
    await later(stall, 2 * stall.settings.destroyed_kept_s)
    assert worker.parts.runner.list() == []


async def test_many_that_wait_are_archived_a_few_at_a_time(worker: SimWorker, stall: MemoryWorld, place: Moody) -> None:
    made = await destroyed(worker, 5 * PARALLEL)
    await later(stall, 3 * stall.settings.reconcile_every_s)
    assert set(archived(worker)) == set(made)
    assert 1 < place.at_once <= PARALLEL
    assert place.asked["put"] == len(made)


async def test_machines_that_were_destroyed_before_there_was_an_archive_are_archived(
    stall: MemoryWorld, place: Moody
) -> None:
    archive, stall.archive = stall.archive, None
    async with stall.open() as worker:
        await worker.app()
        (machine_id,) = await destroyed(worker)
        await later(stall, 2 * stall.settings.reconcile_every_s)
        assert archived(worker) == []
    stall.archive = archive
    async with stall.open() as worker:
        await later(stall, 2 * stall.settings.reconcile_every_s)
        assert archived(worker) == [machine_id]


async def test_an_open_run_of_the_last_daemon_is_joined(stall: MemoryWorld, place: Moody) -> None:
    async with stall.open() as worker:
        await worker.app()
        (machine_id,) = await destroyed(worker)
        place.failure = Unavailable("away")
        await later(stall, stall.settings.reconcile_every_s + 5)
        (run,) = worker.parts.runner.list(flow="archive", active=True)
    place.failure = None
    async with stall.open() as worker:
        await later(stall, 2 * stall.settings.reconcile_every_s)
        assert [each.run_id for each in worker.parts.runner.list(flow="archive")] == [run.run_id]
        assert archived(worker) == [machine_id]
