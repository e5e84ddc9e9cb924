"""What requests and answers have in common, and the contract's way to write an instant."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """From a client. Absent and null are the same; which routes refuse unknown fields is in the route table.
    `rules` are those between its fields, as JSON Schema: for the document."""

    rules: ClassVar[Mapping[str, Any]] = {}


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """To a client. A field without a default is always sent; one with a default is left out when it has it."""


def instant(seconds: float) -> datetime:
    """Unix seconds as the UTC time that is sent as RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC)


class Ok(Answer, frozen=True, kw_only=True):
    ok: bool
    """Always true: what was not done is an error."""


# What is sent instead of an answer when a call fails.


class Problem(Answer, frozen=True, kw_only=True):
    """The body of every error answer. `error` is for people, `status` for programs. `scope`, `shortfall` and
    `nearest` tell what an order lacked: where (host, region, quota), how much of each resource, and the nearest region
    that could fill it. `order` names one that may or may not have been filled, `node` where something moved
    to. `errors` is `error` once more, for clients of GraphQL."""

    error: str
    status: str
    scope: str | None = None
    shortfall: dict[str, int] | None = None
    nearest: str | None = None
    order: str | None = None
    node: str | None = None
    errors: tuple[dict[str, str], ...] = ()


class Failed(Answer, frozen=True, kw_only=True, tag_field="type", tag="failed"):
    """The last line of a stream, or message of a socket, that failed after it had begun."""

    http_status: int
    """The HTTP status that the call would have had if it had failed at its beginning, 400 to 599."""
    problem: Problem
