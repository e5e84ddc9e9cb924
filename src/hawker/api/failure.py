"""Errors of the family to and from the body of an error answer, and what goes wrong between a client and a node, as
errors of the family. Pure.
"""

import msgspec

from hawker import errors
from hawker.api.contract.body import Failed, Problem
from hawker.errors import (
    BadRequest,
    CannotStart,
    DeadlineExceeded,
    Fault,
    HawkerError,
    Moved,
    NoRoom,
    OrderUncertain,
    QuotaExceeded,
    Unavailable,
)
from hawker.http.message import AnswerTooLong

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
    if isinstance(error, QuotaExceeded):
        return Problem(error=str(error), status=error.code, scope="quota", shortfall=error.shortfall)
    order = error.order if isinstance(error, OrderUncertain) else None
    node = error.node if isinstance(error, Moved) else None
    return Problem(error=str(error), status=error.code, order=order, node=node)


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
    if kind is QuotaExceeded:
        return QuotaExceeded(problem.error, shortfall=problem.shortfall or {})
    if kind is OrderUncertain:
        return OrderUncertain(problem.error, order=problem.order or "")
    if kind is Moved:
        return Moved(problem.error, node=problem.node or "")
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


class Unreachable(Unavailable):
    """Found on this side: nothing was sent."""


class Overdue(DeadlineExceeded):
    """Found on this side: whether the call took effect is not known."""


class ConnectionLost(Fault):
    """Found on this side: whether the call took effect is not known, as when it is overdue. Who may ask twice asks
    again."""

    retry = True


class TooLongAnswer(ConnectionLost):
    """Found on this side: whether the call took effect is not known."""

    retry = False


def unreachable(url: str, error: BaseException | None = None) -> Unreachable:
    why = getattr(error, "verify_message", "")  # of an `ssl.SSLCertVerificationError`
    if why:
        return Unreachable(f"the certificate of {url} is not taken: {why}")
    if getattr(error, "library", "") == "SSL":  # of an `ssl.SSLError`
        why = str(getattr(error, "reason", "")).replace("_", " ").lower()
        return Unreachable(f"no TLS with {url} ({why}): a node without it is reached by http://")
    return Unreachable(f"cannot reach {url}: is the node running? start one with `hawker up`")


def overdue(url: str) -> Overdue:
    return Overdue(f"no answer from {url} in time")


def lost(url: str, error: Exception) -> ConnectionLost:
    return ConnectionLost(f"the connection to {url} was lost: {str(error) or type(error).__name__}")


def too_long(url: str, error: AnswerTooLong) -> TooLongAnswer:
    return TooLongAnswer(f"{url} was cut off: {error}")


def not_understood(url: str, error: msgspec.DecodeError) -> Fault:
    return Fault(f"{url} answered in a way that this version does not know: {error}")


def no_address(url: str) -> BadRequest:
    return BadRequest(f"{url!r} is not a node's address, such as http://127.0.0.1:4280")


def refusal(status: int, data: bytes) -> HawkerError:
    """The error in an error answer, also in one that is not ours."""
    try:
        return error_of(status, msgspec.json.decode(data, type=Problem))
    except msgspec.DecodeError:
        text = data[:200].decode(errors="replace").strip() or "no text"
        return error_of(status, Problem(error=f"HTTP status {status}: {text}", status="unknown"))
