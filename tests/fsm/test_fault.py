"""An error is stored and comes back as what it was."""

from typing import Any

import msgspec
import pytest

from hawker import errors
from hawker.errors import HawkerError, NoRoom
from hawker.fsm.fault import Fault, error_of, fault_of

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
