import pytest

from hawker.chaos.tally import Outcome, Tally, outcome_of, quantile
from hawker.errors import Conflict, DeadlineExceeded, Fault, HawkerError, NotFound, RateLimited, Unavailable


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NotFound("machine not found"), Outcome.REFUSED),
        (Conflict("busy"), Outcome.REFUSED),
        (RateLimited("slow down"), Outcome.REFUSED),
        (Unavailable("the store cannot be used now"), Outcome.UNAVAILABLE),
        (Fault("the connection to http://127.0.0.1:1 was lost: gone"), Outcome.LOST),
        (DeadlineExceeded("no answer from http://127.0.0.1:1 in time"), Outcome.LOST),
        (DeadlineExceeded("machine failed to reach desired state, started, currently stopped"), Outcome.REFUSED),
        (Fault("internal error, request id 7"), Outcome.INTERNAL),
    ],
    ids=str,
)
def test_an_error_is_an_outcome(error: HawkerError, outcome: Outcome) -> None:
    assert outcome_of(error) is outcome


def test_only_good_answers_have_a_latency() -> None:
    tally = Tally()
    tally.called("start", Outcome.OK, 0.5)
    tally.called("start", Outcome.LOST, 9.0)
    assert tally.calls["start"] == {Outcome.OK: 1, Outcome.LOST: 1}
    assert tally.latencies_ms["start"] == [500.0]


def test_quantiles() -> None:
    assert quantile([], 0.5) == 0
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile(list(range(100)), 0.99) == 99 and quantile([5.0], 0.99) == 5.0
