"""What requests and answers have in common, and the contract's way to write an instant."""

from datetime import UTC, datetime

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """From a client. Absent and null are the same; which routes refuse unknown fields is in the route table."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """To a client. A field without a default is always sent; one with a default is left out when it has it."""


def instant(seconds: float) -> datetime:
    """Unix seconds as the UTC time that is sent as RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC)


class Ok(Answer, frozen=True, kw_only=True):
    ok: bool
