"""The audit logs of a fleet's nodes. For operators: not part of the Machines API.

A place in them is a token, as in the log of an app: `node:position` pairs divided by commas.
"""

from typing import Annotated

import msgspec

from hawker.api.contract.app_log import LogPlace
from hawker.api.contract.body import Answer
from hawker.api.route import NoParams, Tag, Unary
from hawker.errors import BadRequest, NotFound, OverShare

NODE_BYTES = 1 << 20
"""The most that one answer of a node has of lines, unless one line is longer."""

_Name = Annotated[str, msgspec.Meta(max_length=256)]


class AuditSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines are asked for; an empty field selects all. `app` is a name, `machine` an id, `who` a holder's name or
    a token's id, `what` the name of a route, `since` a moment as RFC 3339, or the beginning of one."""

    app: _Name = ""
    machine: _Name = ""
    who: _Name = ""
    what: _Name = ""
    since: _Name = ""


class AuditQuery(AuditSelection, frozen=True, kw_only=True):
    """`after` is the `next` of an answer; without it, from the oldest entry on. `node` is one id, or all nodes."""

    after: LogPlace = ""
    node: _Name = ""


class AuditLine(Answer, frozen=True, kw_only=True):
    """`host` is the node whose log it is in; `entry` the line of JSON, exactly as it is there; `at` is the host's
    clock, as RFC 3339."""

    host: str
    at: str
    entry: str


class AuditPage(Answer, frozen=True, kw_only=True):
    """Oldest first. `more`: there is more right now. `away` are nodes that could not be asked; what they have comes
    when they are back. `broken` says where a log was changed, and why it is known."""

    lines: tuple[AuditLine, ...]
    next: str
    """The place where the next page begins: clients give it back as `after`."""
    more: bool = False
    away: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


class NodeAuditQuery(AuditSelection, frozen=True, kw_only=True):
    """`after` is a position of an answer, `most_bytes` how much of lines may come."""

    after: int | None = None
    most_bytes: Annotated[int, msgspec.Meta(ge=1, le=NODE_BYTES)] = NODE_BYTES


class NodeAuditLine(Answer, frozen=True, kw_only=True):
    at: str
    """The moment when the node wrote the line, as `entry` has it."""
    entry: str
    """The line of the log as it is written, JSON."""
    position: int
    """The line's place in the node's log; a later line has a greater one."""


class NodeAuditPart(Answer, frozen=True, kw_only=True):
    """`position` is how far was looked; `seen` the latest moment up to there, empty when nothing was looked at."""

    lines: tuple[NodeAuditLine, ...]
    position: int | None
    seen: str = ""
    more: bool = False
    """True when the node has more lines right now, behind `position`."""
    broken: str = ""
    """The place where somebody changed the log, and why it is known; empty for a log that is whole."""


LIST_AUDIT = Unary(
    name="list_audit",
    method="GET",
    path="/hawker/v1/audit",
    params=NoParams,
    query=AuditQuery,
    response=AuditPage,
    tag=Tag.NODE,
    summary="Show a page of the audit logs of all nodes, or of one; takes control of the whole fleet",
    errors=(NotFound, BadRequest, OverShare),
    timeout_s=60.0,
)

NODE_AUDIT = Unary(
    name="node_audit",
    method="GET",
    path="/internal/v1/audit",
    params=NoParams,
    query=NodeAuditQuery,
    response=NodeAuditPart,
    tag=Tag.NODE,
    summary="Show a page of one node's audit log, and whether its chain holds",
    errors=(OverShare,),
    timeout_s=60.0,
)

AUDIT_ROUTES = (LIST_AUDIT,)
AUDIT_PEER_ROUTES = (NODE_AUDIT,)
