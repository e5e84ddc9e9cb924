import msgspec
import pytest

from hawker import errors
from hawker.api.codec import encode_json
from hawker.api.contract.body import Problem
from hawker.api.failure import (
    error_in,
    error_of,
    failed,
    is_failed,
    lost,
    not_understood,
    overdue,
    problem_of,
    refusal,
    unreachable,
)
from hawker.errors import (
    BadRequest,
    CannotStart,
    Conflict,
    DeadlineExceeded,
    Fault,
    HawkerError,
    LeaseHeld,
    NoRoom,
    Unavailable,
)

FAMILY = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, HawkerError) and kind not in (HawkerError, CannotStart, NoRoom)
]


@pytest.mark.parametrize("kind", FAMILY, ids=lambda kind: kind.__name__)
def test_an_error_comes_back_as_itself(kind: type[HawkerError]) -> None:
    raised = kind("what happened")
    back = error_of(raised.status, problem_of(raised))
    assert type(back) is kind and str(back) == str(raised)


def test_no_room_comes_back_with_all_it_says() -> None:
    raised = NoRoom("full", scope="region", shortfall={"cpus": 2}, nearest="ams")
    problem = problem_of(raised)
    assert (problem.status, problem.error) == ("insufficient_capacity", "full")
    back = error_of(422, problem)
    assert isinstance(back, NoRoom)
    assert (back.scope, back.shortfall, back.nearest) == ("region", {"cpus": 2}, "ams")


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (500, "internal error", Fault),
        (502, "bad gateway", Fault),
        (503, "later", Unavailable),
        (418, "teapot", BadRequest),
        (409, "machine ID x lease currently held by y", LeaseHeld),
    ],
)
def test_an_answer_of_another_server_is_of_the_family_too(status: int, text: str, kind: type[HawkerError]) -> None:
    back = error_of(status, Problem(error=text, status="unknown"))
    assert type(back) is kind and str(back) == text


def test_a_failed_line_is_told_from_any_other_and_carries_the_error() -> None:
    line = encode_json(failed(NoRoom("full", scope="host", shortfall={})))
    assert is_failed(line) and not is_failed(b'{"type":"output"}')
    assert isinstance(error_in(line), NoRoom)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (unreachable("U"), Unavailable),
        (overdue("U"), DeadlineExceeded),
        (lost("U", OSError("broken pipe")), Fault),
        (not_understood("U", msgspec.DecodeError("no JSON")), Fault),
    ],
)
def test_each_loss_is_of_the_family_and_names_the_node(error: HawkerError, kind: type[HawkerError]) -> None:
    assert isinstance(error, kind) and "U" in str(error)


def test_an_error_without_words_is_told_by_its_kind() -> None:
    assert "ConnectionResetError" in str(lost("U", ConnectionResetError()))


def test_a_refusal_is_the_nodes_own_or_says_what_came_instead() -> None:
    assert isinstance(refusal(409, b'{"error":"busy","status":"conflict"}'), Conflict)
    assert str(refusal(502, b"<html>")).endswith("HTTP status 502: <html>")
    assert str(refusal(500, b"")).endswith("HTTP status 500: no text")
