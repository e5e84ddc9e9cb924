"""Run ids only go up; stored runs tolerate what newer versions add."""

from typing import Any

import msgspec
import pytest

from hawker import errors
from hawker.clock import ManualClock
from hawker.errors import HawkerError, NoRoom
from hawker.fsm.run import ENDED, Fault, Run, State, error_of, fault_of, next_run_id
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


FAMILY = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, HawkerError) and each not in (HawkerError, NoRoom)
]


def stored(fault: Fault) -> Fault:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(fault), type=Fault)


@pytest.mark.parametrize("kind", FAMILY)
def test_each_of_the_family_comes_back(kind: type[HawkerError]) -> None:
    error = kind("what happened")
    fault = stored(fault_of(error))
    again = error_of(fault)
    assert type(again) is kind
    assert (str(again), fault.status, fault.retry) == (str(error), kind.status, kind.retry)


def test_no_room_comes_back_with_its_shortfall() -> None:
    error = NoRoom("full", scope="region", shortfall={"cpus": 2}, nearest="fra")
    again: Any = error_of(stored(fault_of(error)))
    assert isinstance(again, NoRoom)
    assert (str(again), again.scope, again.shortfall, again.nearest) == ("full", "region", {"cpus": 2}, "fra")


def test_a_more_special_error_comes_back_as_its_nearest_kin() -> None:
    class Misplaced(errors.NotFound):
        pass

    assert type(error_of(fault_of(Misplaced("gone")))) is errors.NotFound


def test_error_outside_the_family_is_an_internal_error() -> None:
    fault = stored(fault_of(KeyError("thread")))
    assert (fault.text, fault.kind, fault.status, fault.retry) == ("KeyError: 'thread'", "", 500, False)
    assert type(error_of(fault)) is HawkerError


def test_a_text_is_an_internal_error() -> None:
    assert (fault_of("enough").text, fault_of("enough").status) == ("enough", 500)


def test_a_kind_that_this_version_does_not_know_is_an_internal_error() -> None:
    assert type(error_of(Fault(text="from the future", kind="Teapot"))) is HawkerError
