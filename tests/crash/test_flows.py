"""The daemon dies before, inside and after every step of every flow, and at every commit; the next one finds its way.

What was acknowledged is kept, nothing is there twice, every exit is told once and truly, and nothing is left over.
"""

from pathlib import Path

import pytest

from hawker.archive.archive import Archive
from hawker.archive.directory import DirectoryBackend
from hawker.machine import State
from hawker.record.machine import ARCHIVED
from hawker.runtime.fake_host import FakeFault
from hawker.sim.node.crash_points import CrashPoints, Death
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.store.memory_store import StoreFaults
from tests.crash.scenarios import SCENES, Scenario, places
from tests.short_form import short_form
from tests.worker.hourglass import in_virtual_time
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time
WAYS = ("of a suspended", "after a failure", "that fails")
PLAIN = short_form(
    SCENES,
    lambda scene: not scene.name.endswith(WAYS),
    "dies as often as the plain scene of the flow, which is the short form; each step is in `make test`",
)
CUTS = short_form([False, True], lambda cut: not cut, "a power cut is in the simulator of workers, too")
QUIET_S = 90.0  # longer than any backoff


class Vault(DirectoryBackend):
    """A place for archives whose edges are the fuse's."""

    def __init__(self, root: Path, fuse: CrashPoints) -> None:
        super().__init__(root)
        self._crash_points = fuse

    async def put(self, key: str, file: Path) -> None:
        await self._crash_points.pass_edge()
        await super().put(key, file)
        await self._crash_points.pass_edge()


class Play:
    """One scenario, once: set, acted until the daemon dies or all is done, and taken up again."""

    def __init__(self, scenario: Scenario, directory: Path) -> None:
        self.scenario = scenario
        self.stall = MemoryWorld(directory, reconciles=False)
        self.directory = directory
        self.machine_id = ""
        self.acknowledged = False

    async def prepare(self) -> None:
        async with self.stall.open() as worker:
            await worker.app()
            self.machine_id = await self.scenario.before(worker)
            await worker.at_rest()
        self.stall.crash()
        self.stall.crash_points.passed.clear()
        self.stall.crash_points.edges = 0

    async def act(self) -> bool:
        """True when the daemon died of it."""
        if self.scenario.archives:
            self.stall.archive = Archive(
                Vault(self.directory / "archive", self.stall.crash_points), self.directory / "staging"
            )
        if self.scenario.spoilt:
            self.stall.host.script("start", *[FakeFault(error=OSError("spoilt"), after=True)] * 3)
        try:
            async with self.stall.open() as worker:
                await self.scenario.act(worker, self.machine_id)
                self.acknowledged = True
                await _rests(worker)
        except Death:
            return True
        return False

    async def resume(self) -> None:
        self.stall.crash_points.burns_at = self.stall.crash_points.burns_in = None
        async with self.stall.open() as worker:
            await _rests(worker)
            machines = worker.machines()
            if not self.machine_id and machines:
                self.machine_id = machines[0].id
            state = worker.record(self.machine_id).state if self.machine_id else None
            check_at_rest(self.stall)
            if self.stall.archive is not None:
                await self._check_archive(worker, self.stall.archive)
        assert len(machines) <= 1
        self._check(state)

    def _check(self, state: State | None) -> None:
        if self.acknowledged and self.scenario.undone is not None:
            assert state in self._done, f"acknowledged, and {state}"
        else:
            assert state in {*self._done, self.scenario.undone}

    async def _check_archive(self, worker: SimWorker, archive: Archive) -> None:
        """Once, whole and confirmed; nothing is left on its way, and the runs that brought it there are not in it."""
        history = await archive.read(self.machine_id)
        assert history is not None and [run.flow for run in history.runs] == ["create", "destroy"]
        assert [event.status for event in history.events][-1] == "destroyed"
        assert [key for key, _ in worker.store.scan(ARCHIVED)] == [self.machine_id]
        assert [path.name for path in (self.directory / "staging").iterdir()] == []
        assert len(list((self.directory / "archive").glob("*/*"))) == 1

    @property
    def _done(self) -> frozenset[State | None]:
        """A failure that is asked for may be spent on a try that the crash made void."""
        return frozenset({self.scenario.done, State.STARTED} if self.scenario.spoilt else {self.scenario.done})


async def _rests(worker: SimWorker) -> None:
    """Until nothing is under way, and nothing was to come later."""
    await worker.at_rest()
    await worker.parts.deps.clock.sleep(QUIET_S)
    await worker.at_rest()


@pytest.mark.parametrize("scenario", SCENES, ids=lambda scenario: scenario.name)
async def test_a_scene_without_a_crash_ends_as_it_should(scenario: Scenario, tmp_path: Path) -> None:
    play = Play(scenario, tmp_path)
    await play.prepare()
    assert not await play.act()
    play.stall.crash()
    await play.resume()


@pytest.mark.parametrize(("scenario", "place"), places(), ids=lambda value: getattr(value, "name", value))
async def test_the_daemon_dies_at_a_step(scenario: Scenario, place: str, tmp_path: Path) -> None:
    play = Play(scenario, tmp_path)
    await play.prepare()
    play.stall.crash_points.burns_in = place
    assert await play.act(), f"{place} was not reached: {sorted(play.stall.crash_points.passed)}"
    play.stall.crash(keep=0)
    await play.resume()


@pytest.mark.parametrize("scenario", PLAIN, ids=lambda scenario: scenario.name)
async def test_the_daemon_dies_at_any_edge_of_any_effect(scenario: Scenario, tmp_path: Path) -> None:
    number, died = 0, True
    while died:
        number += 1
        play = Play(scenario, tmp_path / str(number))
        await play.prepare()
        play.stall.crash_points.burns_at = number
        died = await play.act()
        play.stall.crash()
        await play.resume()
    assert number > 2


@pytest.mark.parametrize("power_cut", CUTS, ids=["killed", "power cut"])
@pytest.mark.parametrize("scenario", PLAIN, ids=lambda scenario: scenario.name)
async def test_the_daemon_dies_after_any_commit(scenario: Scenario, power_cut: bool, tmp_path: Path) -> None:
    number, died = 0, True
    while died:
        number += 1
        play = Play(scenario, tmp_path / str(number))
        await play.prepare()
        play.stall.crash(faults=StoreFaults(freeze_after=number))
        died = await play.act()
        play.stall.crash(keep=0 if power_cut else None)
        await play.resume()
    assert number > 3
