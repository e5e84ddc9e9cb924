"""The real daemon is killed before, inside and after every step of every flow, around every commit that acknowledges an
order, and whoever takes over from it at the next place again; then the operation is done, once, and nothing is left.

As `hawker chaos steps --in-a-row`: each boot is both the recovery from one crash and the way to the next.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.chaos.kill_runner import KillOutcome, KillRunner
from hawker.chaos.scenarios import SCENARIOS, Scenario, unmet, without_repetition
from hawker.chaos.steps import StepsPlan, deaths, killable_node
from hawker.clock import SystemClock

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]

Rehearsals = dict[str, KillOutcome]
LONG = pytest.mark.long(reason="some 300 daemons die; a death at a place of each kind is the short form")
PATIENT = pytest.mark.timeout(3600)  # all scenarios before the first, or 70 deaths of a create, on a busy host
EACH_KIND = (
    "create.accept.before",
    "create.accept.after",
    "create.network.before",
    "create.launch.spawned",
    "create.launch.after",
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Real time: the node is another process."""
    return "asyncio"


@pytest.fixture(scope="module")
async def kill_runner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KillRunner]:
    left: list[str] = []
    place: Path = tmp_path_factory.mktemp("besieged")
    async with killable_node(StepsPlan(driver="container", where=place), SystemClock(), left) as kill_runner:
        yield kill_runner
    assert left == []


@pytest.fixture(scope="module")
async def rehearsals(kill_runner: KillRunner) -> Rehearsals:
    """Each scenario once without a death."""
    return {scenario.name: await kill_runner.rehearse(scenario) for scenario in SCENARIOS}


async def test_a_create_survives_death_at_a_place_of_each_kind(kill_runner: KillRunner) -> None:
    """Around the commit that acknowledges it, before a step, inside one and after one."""
    create = next(scenario for scenario in SCENARIOS if scenario.name == "create")
    outcomes = [outcome async for outcome in deaths(kill_runner, create, EACH_KIND, in_a_row=True)]
    assert [(outcome.places, outcome.findings) for outcome in outcomes] == [(EACH_KIND, ())]


@LONG
@PATIENT
async def test_scenes_without_a_death_end_as_they_should(rehearsals: Rehearsals) -> None:
    assert {name: outcome.findings for name, outcome in rehearsals.items() if outcome.findings} == {}


@LONG
@PATIENT
async def test_every_place_of_every_flow_is_met(rehearsals: Rehearsals) -> None:
    assert unmet(frozenset(place for outcome in rehearsals.values() for place in outcome.places)) == []


@LONG
@PATIENT
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_a_flow_survives_death_at_every_place(
    scenario: Scenario, kill_runner: KillRunner, rehearsals: Rehearsals
) -> None:
    """What flows share is met in one of them; `hawker chaos steps` meets it in each."""
    places = without_repetition({name: outcome.places for name, outcome in rehearsals.items()})[scenario.name]
    outcomes = [outcome async for outcome in deaths(kill_runner, scenario, places, in_a_row=True)]
    assert [(outcome.places, outcome.findings) for outcome in outcomes if outcome.findings] == []
    assert {place for outcome in outcomes for place in outcome.places} == set(places)
