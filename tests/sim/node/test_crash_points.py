import pytest

from hawker.fsm.contract import Done, Flow, Outcome, Step
from hawker.sim.node.crash_points import CrashPoints, Death, with_crash_points
from hawker.worker.lifecycle.stop import Rest

pytestmark = pytest.mark.anyio


async def test_daemon_dies_at_the_chosen_edge() -> None:
    crash_points = CrashPoints()
    crash_points.burns_at = 2
    await crash_points.pass_edge()
    with pytest.raises(Death):
        await crash_points.pass_edge()


async def test_a_fused_step_dies_before_or_after_itself() -> None:
    done: list[str] = []

    async def do(context: object) -> Outcome:
        done.append("done")
        return Done()

    for moment, expected in (("before", []), ("after", ["done"])):
        crash_points = CrashPoints()
        crash_points.burns_in = f"make.it {moment}"
        step = with_crash_points(Flow(name="make", input=Rest, steps=(Step("it", do),)), crash_points).steps[0]
        with pytest.raises(Death):
            await step.do(None)  # type: ignore[arg-type]
        assert done == expected


def test_places_that_were_reached_are_remembered() -> None:
    crash_points = CrashPoints()
    crash_points.reach("make.it before")
    assert crash_points.passed == {"make.it before"}
