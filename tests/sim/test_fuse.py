import pytest

from hawker.fsm.contract import Done, Flow, Outcome, Step
from hawker.sim.fuse import Death, Fuse, fused
from hawker.worker.lifecycle.stop import Rest

pytestmark = pytest.mark.anyio


async def test_it_burns_through_at_the_chosen_edge() -> None:
    fuse = Fuse()
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
        fuse = Fuse()
        fuse.burns_in = f"make.it {moment}"
        step = fused(Flow(name="make", input=Rest, steps=(Step("it", do),)), fuse).steps[0]
        with pytest.raises(Death):
            await step.do(None)  # type: ignore[arg-type]
        assert done == expected


def test_places_that_were_reached_are_remembered() -> None:
    fuse = Fuse()
    fuse.reach("make.it before")
    assert fuse.passed == {"make.it before"}
