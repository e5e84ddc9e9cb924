"""What is sent instead of an answer when a call fails."""

from hawker.api.bodies.body import Answer


class Problem(Answer, frozen=True, kw_only=True):
    """The body of every error answer. `error` is for people, `status` for programs. `scope`, `shortfall` and
    `nearest` tell what an order lacked: where (host, region, quota), how much of each resource, and the nearest region
    that could fill it. `order` names one that may or may not have been filled."""

    error: str
    status: str
    scope: str | None = None
    shortfall: dict[str, int] | None = None
    nearest: str | None = None
    order: str | None = None


class Failed(Answer, frozen=True, kw_only=True, tag_field="type", tag="failed"):
    """The last line of a stream, or message of a socket, that failed after it had begun."""

    http_status: int
    problem: Problem
