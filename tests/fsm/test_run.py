"""Run ids only go up; stored runs tolerate what newer versions add."""

import msgspec
import pytest

from hawker.clock import ManualClock
from hawker.fsm.run import ENDED, Run, State, next_run_id
from hawker.ids import RunId, new_ulid
from tests.fsm.test_transition import run_at


def test_ids_of_one_millisecond_go_up() -> None:
    clock, last = ManualClock(), RunId("")
    for _ in range(1000):
        fresh = next_run_id(clock, last)
        assert fresh > last and len(fresh) == 26
        last = fresh


def test_an_id_after_the_clock_went_back_still_goes_up() -> None:
    late = RunId(new_ulid(ManualClock(start=2_000_000_000)))
    assert next_run_id(ManualClock(start=1_000_000_000), late) > late


@pytest.mark.parametrize(("last", "expected"), [("7Z0", "7Z1"), ("7Z9", "7ZA"), ("7ZZ", "800"), ("0ZZ", "100")])
def test_the_next_id_carries(last: str, expected: str) -> None:
    class Past(ManualClock):
        def now(self) -> float:
            return 0.0

    assert next_run_id(Past(), RunId("Y" * 23 + last)) == "Y" * 23 + expected


def test_a_stored_run_comes_back_and_tolerates_new_fields() -> None:
    run = run_at("b", State.UNDOING)
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(run))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode({**fields, "newer": 1}), type=Run) == run


def test_ended_states() -> None:
    assert {state.value for state in ENDED} == {"done", "failed", "cancelled"}
