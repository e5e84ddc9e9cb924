"""A siege of a node whose machines are processes; on containers it is tests/crash."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from hawker.chaos.kill_runner import KillRunner
from hawker.chaos.scenarios import SCENARIOS, Scenario
from hawker.chaos.steps import StepsPlan, deaths, killable_node
from hawker.clock import SystemClock
from hawker.host.residue import host
from hawker.host.residue import left as traces_left
from hawker.machine import State
from tests.waiting import wait_for

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
MORE = pytest.mark.long(reason="as the death after an acknowledgement, at further places")
OTHERS = ("stop.accept.before", "stop.halt.after")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def kill_runner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KillRunner]:
    left: list[str] = []
    plan = StepsPlan(driver="process", where=tmp_path_factory.mktemp("besieged"))
    async with killable_node(plan, SystemClock(), left) as kill_runner:
        yield kill_runner
    assert left == []


def scenario(name: str) -> Scenario:
    return next(scenario for scenario in SCENARIOS if scenario.name == name)


async def test_a_rehearsal_names_the_places_in_order(kill_runner: KillRunner) -> None:
    outcome = await kill_runner.rehearse(scenario("stop"))
    assert outcome.findings == ()
    assert outcome.places == (
        "stop.accept.before",
        "stop.accept.after",
        "stop.halt.before",
        "stop.halt.asked",
        "stop.halt.after",
        "stop.release.before",
        "stop.release.after",
        "stop.rest.before",
        "stop.rest.after",
    )


@pytest.mark.parametrize("place", ["stop.accept.after", *(pytest.param(place, marks=MORE) for place in OTHERS)])
async def test_a_death_is_survived(place: str, kill_runner: KillRunner) -> None:
    outcome = await kill_runner.strike(scenario("stop"), place)
    assert (outcome.places, outcome.findings) == ((place,), ())
    assert outcome.recovered_ms is not None and outcome.recovered_ms > 0


@pytest.mark.long(reason="tests/crash/test_kill_at_every_step.py has them on containers, by the same code")
async def test_one_death_after_the_other_is_survived(kill_runner: KillRunner) -> None:
    places = ["create.accept.before", "create.accept.after", "create.launch.before", "create.launch.spawned"]
    outcomes = [outcome async for outcome in deaths(kill_runner, scenario("create"), places, in_a_row=True)]
    assert [(outcome.places, outcome.findings) for outcome in outcomes] == [(tuple(places), ())]


async def test_a_place_that_nobody_comes_by_is_told(kill_runner: KillRunner) -> None:
    outcome = await kill_runner.strike(scenario("stop"), "stop.halt.never")
    assert outcome.findings == ("did not die at stop.halt.never",)
    assert (await kill_runner.strike_in_a_row(scenario("stop"), ["stop.halt.never"])).findings == outcome.findings


async def test_an_end_that_is_not_the_scenes_is_told(kill_runner: KillRunner) -> None:
    outcome = await kill_runner.strike(replace(scenario("stop"), done=State.FAILED), "stop.rest.before")
    assert outcome.findings == ("is stopped, not failed",)


def spoil(place: Path) -> None:
    [store] = place.glob("*/data/hawker.db")
    store.write_bytes(bytes(1 << 16))


@pytest.mark.long(reason="three boots that fail; a boot that is refused, in test_daemon.py, is the short form")
async def test_a_node_that_cannot_be_started_is_told_and_cleaned_up_after(tmp_path: Path) -> None:
    """Its store is damaged, and one of its machines runs."""
    before, left = host(), list[str]()
    async with killable_node(StepsPlan(driver="process", where=tmp_path), SystemClock(), left) as kill_runner:
        assert (await kill_runner.rehearse(scenario("start"))).findings == ()
        spoil(tmp_path)
        for outcome in (
            await kill_runner.rehearse(scenario("stop")),
            await kill_runner.strike(scenario("stop"), "stop.halt.before"),
            await kill_runner.strike_in_a_row(scenario("stop"), ["stop.halt.before"]),
        ):
            assert "the scenario cannot be set: Unavailable" in outcome.findings[0]
    assert len(left) == 1 and "could not be withdrawn" in left[0]
    wait_for(lambda: not traces_left(before, tmp_path))
    assert os.listdir(tmp_path) == []
