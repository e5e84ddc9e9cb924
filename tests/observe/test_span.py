"""Ids of spans: computed, so that a new daemon computes the same."""

from hawker.clock import ManualClock
from hawker.fsm.run import next_run_id
from hawker.ids import RunId, new_ulid
from hawker.observe.span import span_of, span_of_attempt, trace_of

RUN = RunId("01ARZ3NDEKTSV4RRFFQ69G5FAV")


def test_a_trace_is_the_runs_ulid_as_a_number() -> None:
    assert f"{trace_of(RUN):032x}" == "01563e3ab5d3d6764c61efb99302bd5b"


def test_the_largest_ulid_fits_into_a_trace() -> None:
    assert trace_of(RunId("Z" * 26)) == (1 << 128) - 1


def test_no_run_has_the_span_that_means_none() -> None:
    assert span_of(RunId("0" * 26)) == 1


def test_runs_of_one_millisecond_have_spans_of_their_own() -> None:
    clock = ManualClock()
    ids = [RunId(new_ulid(clock))]
    for _ in range(100):
        ids.append(next_run_id(clock, ids[-1]))
    assert len({span_of(run_id) for run_id in ids}) == len(ids)


def test_an_attempt_has_the_same_span_whoever_computes_it_and_another_when_it_is_made_again() -> None:
    assert span_of_attempt(RUN, "copy", 1, 2.5) == span_of_attempt(RUN, "copy", 1, 2.5)
    others = {
        span_of_attempt(RUN, "copy", 1, 2.5),
        span_of_attempt(RUN, "copy", 1, 9.0),
        span_of_attempt(RUN, "copy", 2, 2.5),
        span_of_attempt(RUN, "move", 1, 2.5),
    }
    assert len(others) == 4 and all(0 < each < 1 << 64 for each in others)
