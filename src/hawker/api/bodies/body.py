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
