from enum import StrEnum
from typing import TypeAlias

import pytest

from hawker.sim.harness.loop import LoopClock
from hawker.sim.harness.plan import RunOperation, RunPlan, do_in_turn, numbered
from tests.worker.hourglass import in_virtual_time

anyio_backend = in_virtual_time


class ToyVerb(StrEnum):
    PUSH = "push"


Toy: TypeAlias = RunOperation[ToyVerb]


def toy(number: int, at: float, actor: str = "ann") -> Toy:
    return RunOperation(number, at, actor, ToyVerb.PUSH)


def test_operations_are_numbered_by_time() -> None:
    assert [(each.number, each.at) for each in numbered([toy(0, 2.0), toy(0, 1.0)])] == [(1, 1.0), (2, 2.0)]


def test_plan_cut_to_numbers_keeps_its_seed() -> None:
    plan: RunPlan[Toy] = RunPlan(7, (toy(1, 1.0), toy(2, 2.0, "bob"), toy(3, 3.0)))
    cut = plan.only({1, 2})
    assert cut.seed == 7 and cut.of("ann") == (toy(1, 1.0),) and cut.of("bob") == (toy(2, 2.0, "bob"),)


@pytest.mark.anyio
async def test_operations_of_actor_are_done_at_their_times() -> None:
    clock, done = LoopClock(1), list[float]()

    async def do(operation: Toy) -> None:
        done.append(round(clock.monotonic() - began, 3))
        await clock.sleep(1.5)

    began = clock.monotonic()
    await do_in_turn([toy(1, 1.0), toy(2, 2.0), toy(3, 9.0)], clock, do, began)
    assert done == [1.0, 2.5, 9.0]
