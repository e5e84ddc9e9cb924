"""Facts about the values that the contract itself works out."""

import pytest

from hawker.runtime.driver import Exit, ProcessPhase, ProcessState

ENDED = Exit(exit_code=3, exited_at=1.0)


@pytest.mark.parametrize("state", list(ProcessPhase))
def test_only_a_run_that_has_ended_has_an_exit(state: ProcessPhase) -> None:
    seen = ProcessState(state=state, run=2, last_exit=ENDED)
    assert seen.exit == (ENDED if state is ProcessPhase.EXITED else None)
