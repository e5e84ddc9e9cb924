"""One span: what was done, from when to when, and below what. A value; how it is sent is the exporter's business.

Ids are computed from the ids of runs, so that a daemon that takes a run up again goes on with the same trace.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from hawker.ids import RunId

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_SPAN_BITS = (1 << 64) - 1

Attribute = str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Times are Unix seconds. `error` is what went wrong, if anything."""

    trace: int
    id: int
    parent: int | None
    name: str
    started_at: float
    ended_at: float
    attributes: Mapping[str, Attribute]
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanOrigin:
    """Whose spans they are."""

    node: str
    region: str
    version: str


def trace_of(run_id: RunId) -> int:
    """The trace that begins with a run: its ULID as a number of 128 bits (26 digits of 5 bits hold two more)."""
    value = 0
    for digit in run_id:
        value = value << 5 | _CROCKFORD.index(digit)
    return value & (1 << 128) - 1


def span_of(run_id: RunId) -> int:
    """The span of a run: the last 64 of its random bits; of another run in the same millisecond they differ too."""
    return trace_of(run_id) & _SPAN_BITS or 1


def span_of_attempt(run_id: RunId, step: str, attempt: int, started_at: float) -> int:
    """An attempt that is made again after a crash is a span of its own."""
    text = f"{run_id} {step} {attempt} {started_at!r}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") or 1
