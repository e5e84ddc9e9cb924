import pytest

from hawker.errors import NotServed, Unavailable
from hawker.worker.other_nodes import LateNodes, LateRuns


def test_others_that_are_not_there_yet_may_be_asked_again() -> None:
    late = LateNodes()
    with pytest.raises(Unavailable):
        late.there  # noqa: B018 - it is what raises
    with pytest.raises(NotServed, match="in no cluster"):
        late.check()


def test_runs_cannot_be_begun_before_there_is_a_runner() -> None:
    with pytest.raises(AssertionError):
        LateRuns().accept(None, "start", None, None)  # type: ignore[arg-type]
