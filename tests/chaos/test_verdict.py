"""What is said of a machine that is not what its scenario promised."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from hawker.chaos.scenario_context import APP, SampleMachines, ScenarioClient, ScenarioContext, write_commandless_image
from hawker.chaos.scenarios import SCENARIOS, ExpectedExit, Scenario
from hawker.chaos.verdict import ScenarioMachine, check
from hawker.machine import State
from hawker.proof.promises import Promises
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


def scenario(name: str) -> Scenario:
    return next(scenario for scenario in SCENARIOS if scenario.name == name)


class Play:
    def __init__(self, worker: SimWorker, context: ScenarioContext) -> None:
        self.worker = worker
        self.context = context

    async def before(self, scenario: Scenario, *, promised: bool, acknowledged: bool = False) -> ScenarioMachine:
        machine_id = await scenario.before(self.context)
        await self.worker.at_rest()
        return ScenarioMachine(self.context.key, machine_id, promised=promised, acknowledged=acknowledged)

    async def done(self, scenario: Scenario) -> ScenarioMachine:
        subject = await self.before(scenario, promised=True)
        subject.answered(await scenario.act(self.context, subject.machine_id))
        await self.worker.at_rest()
        return subject

    async def check(self, scenario: Scenario, subject: ScenarioMachine) -> list[str]:
        return await check(scenario, subject, self.context.customer, self.context.samples)


@pytest.fixture
async def play(stall: MemoryWorld, tmp_path: Path) -> AsyncIterator[Play]:
    samples = SampleMachines("container", write_commandless_image(tmp_path / "image"), tmp_path / "archive")
    async with stall.open() as worker:
        customer = ScenarioClient(worker.api, APP)
        await customer.open()
        yield Play(worker, ScenarioContext(customer, samples, Promises(), "order", stall.clock))


@pytest.mark.parametrize("name", ["stop", "destroy", "start in vain"])
async def test_machine_as_promised_has_no_finding(name: str, play: Play) -> None:
    assert await play.check(scenario(name), await play.done(scenario(name))) == []


async def test_another_state_and_other_exits_are_told(play: Play) -> None:
    stop, subject = scenario("stop"), await play.done(scenario("stop"))
    assert await play.check(replace(stop, done=State.FAILED), subject) == ["is stopped, not failed"]
    for exits in [(), (ExpectedExit((7,), True),), (ExpectedExit((0, 130), False),), (stop.exits * 2)]:
        [told] = await play.check(replace(stop, exits=exits), subject)
        assert "its history tells of the exits [(130, True)]" in told


async def test_a_failure_without_a_reason_is_told(play: Play) -> None:
    stop, subject = scenario("stop"), await play.done(scenario("stop"))
    [told] = await play.check(replace(stop, undoing=True), subject)
    assert "does not say why" in told


async def test_a_machine_that_runs_and_does_not_answer_is_told(play: Play) -> None:
    start = scenario("start")
    [told] = await play.check(start, await play.done(start))
    assert "answer" in told


async def test_a_history_that_is_not_in_the_archive_is_told(play: Play) -> None:
    destroy, subject = replace(scenario("destroy"), archives=True), await play.done(scenario("destroy"))
    assert await play.check(destroy, subject) == ["the archive has [] of it"]
    play.context.samples.archive.mkdir()
    (play.context.samples.archive / f"{subject.machine_id}.sqlite.zst").touch()
    assert await play.check(destroy, subject) == []


async def test_an_order_that_was_never_promised_is_given_again(play: Play) -> None:
    stop = scenario("stop")
    subject = await play.before(stop, promised=False)
    assert await subject.take_up(stop, play.context) == []
    await play.worker.at_rest()
    assert await play.check(stop, subject) == []


async def test_an_effect_of_what_was_never_promised_is_told(play: Play) -> None:
    subject = await play.done(scenario("stop"))
    unasked = ScenarioMachine("order", subject.machine_id, promised=False, acknowledged=False)
    assert await unasked.take_up(scenario("stop"), play.context) == ["nothing was committed, and it is stopped"]


async def test_a_machine_that_was_promised_and_is_not_there_is_told(play: Play) -> None:
    subject = ScenarioMachine("order", None, promised=True, acknowledged=False)
    [told] = await subject.take_up(scenario("create"), play.context)
    assert "not there until it was ordered again" in told
    assert subject.machine_id is not None


async def test_an_acknowledged_order_is_not_given_again(play: Play) -> None:
    subject = await play.done(scenario("create"))
    assert await subject.take_up(scenario("create"), play.context) == []
    assert await subject.ended_at(play.context.customer) > 0
    assert len(play.worker.machines()) == 1
