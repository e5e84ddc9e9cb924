"""Values with bounds, patterns and closed sets: declared once, checked where a call is read, told by the document.

`Meta(ge=..., le=...)` is checked as the call is read. What a handler checks itself, because its text is the
contract's, is declared with `WRITTEN`: that schema stands in the document, and the handler uses the same constants.
"""

from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from hawker.config.duration import DURATION_PATTERN, MOST_PLAIN_S, SECONDS_PATTERN
from hawker.config.process_rules import LONGEST_STOP_S, SIGNAL_NAMES, SIGNAL_NUMBERS

WRITTEN = "x-written"
"""A schema that stands for the whole of what it is found in."""

APPS_IN_PAGE, IN_PAGE, RUNS_IN_PAGE, RELEASES_IN_PAGE = 5000, 1000, 500, 100
SHORTEST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
MIN_RETENTION_DAYS, MAX_RETENTION_DAYS = 1, 60

AppsLimit: TypeAlias = Annotated[int, Meta(ge=1, le=APPS_IN_PAGE)]
PageLimit: TypeAlias = Annotated[int, Meta(ge=1, le=IN_PAGE)]
RunsLimit: TypeAlias = Annotated[int, Meta(ge=1, le=RUNS_IN_PAGE)]
ReleasesLimit: TypeAlias = Annotated[int, Meta(ge=1, le=RELEASES_IN_PAGE)]
EventsLimit: TypeAlias = Annotated[int, Meta(ge=1)]
TerminalSize: TypeAlias = Annotated[int, Meta(ge=0, le=65535)]
"""Lines or columns of a terminal."""


LEAST_INTEGER, GREATEST_INTEGER = -(2**63), 2**63 - 1
TOO_WIDE = "an integer has at most 64 bits"


def is_wide(value: int) -> bool:
    """Whether it has more bits than what is stored and sent on can have."""
    return not LEAST_INTEGER <= value <= GREATEST_INTEGER


def written(schema: dict[str, Any]) -> Meta:
    return Meta(extra_json_schema={WRITTEN: schema})


def _seconds(**bounds: float) -> dict[str, Any]:
    """A number of seconds, or a Go duration; empty is not said."""
    texts = [{"type": "string", "pattern": SECONDS_PATTERN}, {"const": ""}]
    return {"anyOf": [{"type": "number", **bounds}, *texts]}


_NAMES = [*SIGNAL_NAMES, *(name.removeprefix("SIG") for name in SIGNAL_NAMES)]

RetentionDays: TypeAlias = Annotated[
    int, written({"type": "integer", "minimum": MIN_RETENTION_DAYS, "maximum": MAX_RETENTION_DAYS})
]
Seconds: TypeAlias = Annotated[float, written(_seconds(minimum=-MOST_PLAIN_S, maximum=MOST_PLAIN_S))]
WaitSeconds: TypeAlias = Annotated[float, written(_seconds(minimum=SHORTEST_WAIT_S, maximum=LONGEST_WAIT_S))]
StopSeconds: TypeAlias = Annotated[float, written(_seconds(minimum=0, maximum=LONGEST_STOP_S))]
StopTimeout: TypeAlias = Annotated[
    str | int,
    written(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": int(LONGEST_STOP_S * 1e9)},
                {"type": "string", "pattern": SECONDS_PATTERN},
            ]
        }
    ),
]
GoDuration: TypeAlias = Annotated[str, written({"type": "string", "pattern": DURATION_PATTERN})]
SignalName: TypeAlias = Annotated[str, written({"type": "string", "enum": ["", *_NAMES]})]
Signal: TypeAlias = Annotated[
    str | int,
    written({"anyOf": [{"type": "string", "enum": _NAMES}, {"type": "integer", "enum": list(SIGNAL_NUMBERS)}]}),
]

SHELL_WORDS = r"""^([^'"\\]|\\[\s\S]|'[^']*'|"([^"\\]|\\[\s\S])*")*$"""
"""What splits into words as a shell splits it."""
