import msgspec
import pytest

from hawker.api.transport_errors import lost, not_understood, overdue, refusal, unreachable
from hawker.errors import Conflict, DeadlineExceeded, Fault, HawkerError, Unavailable


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
