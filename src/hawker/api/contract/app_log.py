"""The log of an app: output of its machines, also of those that are gone, and the nodes' words about them.

A place in it is a token, `node:position` pairs divided by commas. Whoever shows the token of the last page gets what
came after it, from whichever broker; a node that the token does not name is shown from `since` on.
"""

import re
from datetime import datetime
from typing import Annotated

import msgspec

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import Answer
from hawker.api.route import Stream, Tag, Unary
from hawker.errors import BadRequest, NotFound, OverShare

LINES_IN_PAGE = 5000
PAGE_BYTES = 1 << 20
LONGEST_WAIT_S = 20.0
MAX_PLACE = 16_384
"""Characters: some 400 nodes."""
_AT = "[0-9a-z*]{1,32}:-?[0-9]{1,18}"
_PLACE = f"^({_AT}(,{_AT})*)?$"
LogPlace = Annotated[str, msgspec.Meta(max_length=MAX_PLACE, extra_json_schema={"pattern": _PLACE})]
"""Where each node's log was read up to, or nothing. `places_of` holds it to the pattern, in words for people."""


class LogLine(Answer, frozen=True, kw_only=True, gc=False):
    """`position` is its place in the log of `node`; `stream` is 1 for stdout, 2 for stderr, 0 for the node's own words,
    whose `provider` is runner, proxy for what the edge could not do, or health for a check that began to pass or fail;
    of output it is app. `level` is info, warning or error; `release` the number of the release that the machine was of,
    if its metadata has one. Longer ones than 16 KiB come in pieces."""

    at: datetime
    node: str
    region: str
    """The code of the region of the machine's node."""
    position: int
    machine: str
    """The id of the machine that the line is of."""
    container: str = ""
    """The name of the container that wrote the line; empty in a machine without containers."""
    stream: int
    level: str
    provider: str
    release: str = ""
    text: str
    """One line, without its line end; the app wrote it, so clients must not trust it."""


class AppLogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`after` is a place as an answer's `next`. Without it: the last `tail` lines, none that is older than
    `since`, Unix seconds; with neither, all. `machine`, `region` and `release` select."""

    after: LogPlace = ""
    tail: Annotated[int, msgspec.Meta(ge=0, le=LINES_IN_PAGE)] | None = None
    since: float | None = None
    machine: str = ""
    region: str = ""
    release: str = ""


class AppLogLinesQuery(AppLogQuery, frozen=True, kw_only=True):
    """With `follow` the answer goes on with what comes; without it, it ends with what is there."""

    follow: bool = False


class AppLogPageQuery(AppLogQuery, frozen=True, kw_only=True):
    """`wait_s`: so long the answer may wait for the first line."""

    wait_s: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WAIT_S)] = 0.0


class AppLogPage(Answer, frozen=True, kw_only=True):
    """Oldest first. `more`: there is more right now, also where a page has no lines: nodes have looked at much that was
    not selected, and go on from `next`. `away` are nodes that could not be asked; what they have comes
    when they are back."""

    lines: tuple[LogLine, ...]
    next: str
    """The place where the next page begins: clients give it back as `after`. It is set on every page."""
    more: bool = False
    away: tuple[str, ...] = ()


class NodeLogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The query of `AppLogPageQuery` to one node: `after` is a position in its log. Without it, the last `tail` lines;
    `wait_s` is for how many seconds the answer may wait for the first line."""

    after: int | None = None
    tail: Annotated[int, msgspec.Meta(ge=0, le=LINES_IN_PAGE)] | None = None
    since: float | None = None
    """Unix seconds; only lines of this moment or later."""
    machine: str = ""
    """A machine's id: the answer has only lines of it; empty: lines of all machines."""
    release: str = ""
    """A release's number: the answer has only lines of its machines; empty: lines of all."""
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WAIT_S)] = 0.0


class NodeLogPart(Answer, frozen=True, kw_only=True):
    """`position` is how far was looked, -1 for nowhere yet; with `more` there may be no lines, as in `AppLogPage`."""

    lines: tuple[LogLine, ...]
    position: int
    more: bool = False
    """True when the node has more lines right now, behind `position`."""


def places_of(token: str) -> dict[str, int]:
    """Raises `BadRequest`."""
    if re.search(_PLACE, token) is None:
        raise BadRequest("after: this is no place in a log: show the `next` of an answer as it came")
    pairs = [each.partition(":") for each in token.split(",") if each]
    return {node: int(position) for node, _, position in pairs}


def token_of(places: dict[str, int]) -> str:
    return ",".join(f"{node}:{position}" for node, position in sorted(places.items()))


# Calls about logs of apps.

_LOGS = "/hawker/v1/apps/{app_name}/logs"

APP_LOG = Stream(
    name="app_log",
    method="GET",
    path=_LOGS,
    params=AppParams,
    query=AppLogLinesQuery,
    response=LogLine,
    tag=Tag.APPS,
    summary="Show an app's log, or follow it",
    errors=(NotFound, BadRequest, OverShare),
)

APP_LOG_PAGE = Unary(
    name="app_log_page",
    method="GET",
    path=f"{_LOGS}/page",
    params=AppParams,
    query=AppLogPageQuery,
    response=AppLogPage,
    tag=Tag.APPS,
    summary="Show a page of an app's log, or wait for its next lines",
    errors=(NotFound, BadRequest, OverShare),
    timeout_s=60.0,
)

NODE_LOG = Unary(
    name="node_log",
    method="GET",
    path="/internal/v1/apps/{app_name}/logs",
    params=AppParams,
    query=NodeLogQuery,
    response=NodeLogPart,
    tag=Tag.NODE,
    summary="Show what one node has of an app's log, or wait for its next lines",
    errors=(NotFound, OverShare),
    timeout_s=60.0,
)

APP_LOG_ROUTES = (APP_LOG, APP_LOG_PAGE)
APP_LOG_PEER_ROUTES = (NODE_LOG,)
