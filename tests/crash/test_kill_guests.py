"""As test_kill_at_every_step, on a node whose machines are microVMs: the daemon, and whoever takes over from it, is
killed at each step of the flows that begin, hold and end a guest.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.chaos.kill_runner import KillRunner
from hawker.chaos.scenarios import SCENARIOS, Scenario
from hawker.chaos.steps import StepsPlan, deaths, killable_node
from hawker.clock import SystemClock
from tests.kernel import kernels

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(3600),  # a guest takes a minute to boot under emulation on a busy host
    pytest.mark.long(
        reason="boots some 40 guest kernels under emulation; test_kill_at_every_step.py has deaths with containers, "
        "tests/e2e/test_microvm.py a guest's life"
    ),
]
STEPS = {
    "create": ("create.launch.",),
    "stop": ("stop.halt.",),
    "suspend": ("suspend.freeze.",),
    "resume": ("resume.plug.", "resume.thaw."),
    "destroy": ("destroy.halt.", "destroy.clear."),
}
"""By scenario, those in which a guest begins, is held or ends; the others are the same for containers. `hawker chaos
steps --driver qemu` goes through all."""

GUESTS = [scenario for scenario in SCENARIOS if scenario.name in STEPS]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Real time: the node is another process."""
    return "asyncio"


@pytest.fixture(scope="module")
async def kill_runner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KillRunner]:
    left: list[str] = []
    place: Path = tmp_path_factory.mktemp("besieged")
    async with killable_node(
        StepsPlan(driver="qemu", where=place, kernels=kernels()), SystemClock(), left
    ) as kill_runner:
        yield kill_runner
    assert left == []


@pytest.mark.parametrize("scenario", GUESTS, ids=lambda scenario: scenario.name)
async def test_a_guests_flow_survives_death_at_every_place_that_concerns_it(
    scenario: Scenario, kill_runner: KillRunner
) -> None:
    rehearsal = await kill_runner.rehearse(scenario)
    places = [place for place in rehearsal.places if place.startswith(STEPS[scenario.name])]
    assert rehearsal.findings == () and places
    outcomes = [outcome async for outcome in deaths(kill_runner, scenario, places, in_a_row=True)]
    assert [(outcome.places, outcome.findings) for outcome in outcomes if outcome.findings] == []
    assert {place for outcome in outcomes for place in outcome.places} == set(places)
