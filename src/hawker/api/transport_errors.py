"""What goes wrong between a client and a node, as errors of the family: one place for every client. Pure."""

import msgspec

from hawker.api.contract.body import Problem
from hawker.api.failure import error_of
from hawker.errors import BadRequest, DeadlineExceeded, Fault, HawkerError, Unavailable


class Unreachable(Unavailable):
    """Found on this side: nothing was sent."""


class Overdue(DeadlineExceeded):
    """Found on this side: whether the call took effect is not known."""


class ConnectionLost(Fault):
    """Found on this side: whether the call took effect is not known."""


def unreachable(url: str) -> Unreachable:
    return Unreachable(f"cannot reach {url}: is the node running? start one with `hawker up`")


def overdue(url: str) -> Overdue:
    return Overdue(f"no answer from {url} in time")


def lost(url: str, error: Exception) -> ConnectionLost:
    return ConnectionLost(f"the connection to {url} was lost: {str(error) or type(error).__name__}")


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
