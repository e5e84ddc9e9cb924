import pytest

from hawker.fsm.contract import Done, Flow, Outcome, Step
from hawker.sim.node.crash_points import CrashPoints, Death, with_crash_points
from hawker.worker.lifecycle.rest import Rest

pytestmark = pytest.mark.anyio


async def test_it_burns_through_at_the_chosen_edge() -> None:
    fuse = CrashPoints()
    fuse.burns_at = 2
    await fuse.pass_edge()
    with pytest.raises(Death):
        await fuse.pass_edge()


async def test_a_fused_step_dies_before_or_after_itself() -> None:
    done: list[str] = []

    async def do(context: object) -> Outcome:
        done.append("done")
        return Done()

    for moment, expected in (("before", []), ("after", ["done"])):
        fuse = CrashPoints()
        fuse.burns_in = f"make.it {moment}"
        step = with_crash_points(Flow(name="make", input=Rest, steps=(Step("it", do),)), fuse).steps[0]
        with pytest.raises(Death):
            await step.do(None)  # type: ignore[arg-type]
        assert done == expected


def test_places_that_were_reached_are_remembered() -> None:
    fuse = CrashPoints()
    fuse.reach("make.it before")
    assert fuse.passed == {"make.it before"}
