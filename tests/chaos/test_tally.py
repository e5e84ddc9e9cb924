import pytest

from hawker.chaos.tally import CallVerdict, SoakTally, outcome_of, quantile
from hawker.errors import Conflict, DeadlineExceeded, Fault, HawkerError, NotFound, RateLimited, Unavailable


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NotFound("machine not found"), CallVerdict.REFUSED),
        (Conflict("busy"), CallVerdict.REFUSED),
        (RateLimited("slow down"), CallVerdict.REFUSED),
        (Unavailable("the store cannot be used now"), CallVerdict.UNAVAILABLE),
        (Fault("the connection to http://127.0.0.1:1 was lost: gone"), CallVerdict.LOST),
        (DeadlineExceeded("no answer from http://127.0.0.1:1 in time"), CallVerdict.LOST),
        (DeadlineExceeded("machine failed to reach desired state, started, currently stopped"), CallVerdict.REFUSED),
        (Fault("internal error, request id 7"), CallVerdict.INTERNAL),
    ],
    ids=str,
)
def test_an_error_is_an_outcome(error: HawkerError, outcome: CallVerdict) -> None:
    assert outcome_of(error) is outcome


def test_only_good_answers_have_a_latency() -> None:
    tally = SoakTally()
    tally.called("start", CallVerdict.OK, 0.5)
    tally.called("start", CallVerdict.LOST, 9.0)
    assert tally.calls["start"] == {CallVerdict.OK: 1, CallVerdict.LOST: 1}
    assert tally.latencies_ms["start"] == [500.0]


def test_quantiles() -> None:
    assert quantile([], 0.5) == 0
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile(list(range(100)), 0.99) == 99 and quantile([5.0], 0.99) == 5.0
