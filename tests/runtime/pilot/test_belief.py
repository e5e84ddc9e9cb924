"""What of a guest's own account is believed."""

from hypothesis import given
from hypothesis import strategies as st

from hawker.runtime.driver import Exit, ProcessState, Run
from hawker.runtime.pilot.belief import believed
from hawker.runtime.pilot.journal import Stages, Story

NOW = 1_000.0
TIMES = st.floats(0, 2e10)
EXITS = st.builds(Exit, exit_code=st.integers(0, 255), exited_at=TIMES, process=st.integers(0, 255))
STATES = st.builds(
    ProcessState, state=st.just(Run.EXITED), run=st.just(1), started_at=TIMES, last_exit=EXITS | st.none()
)
STORIES = st.builds(
    Story,
    started_at=TIMES | st.none(),
    ready_at=TIMES | st.none(),
    first_exit=EXITS | st.none(),
    final_exit=EXITS | st.none(),
    exits=st.dictionaries(st.integers(0, 255), EXITS, max_size=4),
    runs=st.dictionaries(st.integers(0, 255), STATES, max_size=4),
)


@given(STORIES, st.integers(1, 32))
def test_nothing_believed_is_still_to_come_or_of_a_process_that_is_not_there(story: Story, processes: int) -> None:
    sober = believed(story, processes, NOW)
    times = [sober.started_at, sober.ready_at]
    for exit in (sober.first_exit, sober.final_exit):
        assert exit is None or exit.process < processes
        times.append(None if exit is None else exit.exited_at)
    for state in sober.runs.values():
        times += [state.started_at, None if state.last_exit is None else state.last_exit.exited_at]
    assert all(at is None or at <= NOW for at in times)
    assert all(index < processes for index in (*sober.exits, *sober.runs))


def test_what_can_be_is_left_as_it_is() -> None:
    exit = Exit(exit_code=3, exited_at=7.0, process=1, reason="why")
    state = ProcessState(state=Run.EXITED, run=2, started_at=5.0, last_exit=exit)
    stages = Stages(pilot_s=1, devices_s=2, streams_s=3, spec_s=4, root_s=5, network_s=6, executed_s=7, own_s=1)
    story = Story(started_at=1.0, ready_at=2.0, final_exit=exit, exits={1: exit}, runs={1: state}, stages=stages)
    assert believed(story, 2, NOW) == story
