"""Errors of the family to and from the body of an error answer. Pure."""

import msgspec

from hawker import errors
from hawker.api.contract.body import Failed, Problem
from hawker.errors import BadRequest, CannotStart, Fault, HawkerError, NoRoom, OrderUncertain

_FAILED_HEAD = b'{"type":"failed",'


def problem_of(error: HawkerError) -> Problem:
    if isinstance(error, NoRoom):
        return Problem(
            error=str(error),
            status=error.code,
            scope=error.scope,
            shortfall=error.shortfall,
            nearest=error.nearest,
        )
    order = error.order if isinstance(error, OrderUncertain) else None
    return Problem(error=str(error), status=error.code, order=order)


def failed(error: HawkerError) -> Failed:
    """The same, for a stream or a conversation that has begun."""
    return Failed(http_status=error.status, problem=problem_of(error))


def is_failed(data: bytes) -> bool:
    """Whether a line or message is a `Failed` rather than what the route promises."""
    return data.startswith(_FAILED_HEAD)


def error_in(data: bytes) -> HawkerError:
    """The error that a `Failed` carries."""
    told = msgspec.json.decode(data, type=Failed)
    return error_of(told.http_status, told.problem)


def error_of(http_status: int, problem: Problem) -> HawkerError:
    """The error that the other side raised. Its class follows from the status, the code and the text's prefix."""
    kind = _kind_of(http_status, problem)
    if kind is NoRoom:
        shortfall = problem.shortfall or {}
        return NoRoom(problem.error, scope=problem.scope or "host", shortfall=shortfall, nearest=problem.nearest)
    if kind is OrderUncertain:
        return OrderUncertain(problem.error, order=problem.order or "")
    return _with_text(kind, problem.error)


def _kind_of(http_status: int, problem: Problem) -> type[HawkerError]:
    same = [kind for kind in _FAMILY if kind.status == http_status]
    coded = [kind for kind in same if kind.code == problem.status]
    prefixed = [kind for kind in coded if kind.prefix and problem.error.startswith(f"{kind.prefix}:")]
    plain = [kind for kind in coded if not kind.prefix]
    for kind in (*prefixed, *plain, *coded, *same):
        return kind
    return Fault if http_status >= 500 else BadRequest


def _with_text(kind: type[HawkerError], text: str) -> HawkerError:
    """An error with exactly this text: its prefix was added where it was first raised."""
    error = kind.__new__(kind, text)
    Exception.__init__(error, text)
    return error


_FAMILY: tuple[type[HawkerError], ...] = tuple(
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, HawkerError) and kind not in (HawkerError, CannotStart)
)
