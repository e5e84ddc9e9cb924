"""The audit logs of a fleet: what each node wrote, merged by time. As with the log of an app, a broker remembers
nothing between two pages. Each node checks the chain of its own log; who reads all of it can check it again.
"""

from functools import partial

import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.app_log import places_of, token_of
from hawker.api.contract.audit import (
    LIST_AUDIT,
    NODE_AUDIT,
    NODE_BYTES,
    AuditLine,
    AuditPage,
    AuditQuery,
    AuditSelection,
    NodeAuditPart,
    NodeAuditQuery,
)
from hawker.api.directory import Directory, Peers
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoParams
from hawker.errors import NotFound
from hawker.gateway.fan_out import FanOut, Reach
from hawker.ids import NodeId
from hawker.permission import Action, Attempt

PAGE_BYTES = 4 << 20
"""Of the lines of all nodes together, or 16 KiB of each where that is more."""
_LEAST_BYTES = 16 << 10
_NODES_IN_PLACE = 400


class FleetAudit:
    def __init__(self, directory: Directory, fan_out: FanOut) -> None:
        self._directory = directory
        self._fan_out = fan_out

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_AUDIT, self.page)

    async def page(self, call: Call[NoParams, AuditQuery, None]) -> AuditPage:
        """Who reads what everybody did may as well do it: a token to read with does not suffice. Raises `Forbidden`,
        `BadRequest`, `NotFound`, and what a node refuses."""
        call.grant.check(Attempt(Action.CONTROL))
        query, places = call.query, places_of(call.query.after)
        nodes = self._nodes(query.node)
        most_bytes = min(NODE_BYTES, max(_LEAST_BYTES, PAGE_BYTES // max(1, len(nodes))))
        selection = {name: getattr(query, name) for name in AuditSelection.__struct_fields__}
        plain = NodeAuditQuery(most_bytes=most_bytes, **selection)

        async def one(wanted: NodeAuditQuery, caller: Caller) -> NodeAuditPart:
            return await caller.call(NODE_AUDIT, query=wanted)

        asks = {node: partial(one, msgspec.structs.replace(plain, after=places.get(node))) for node in nodes}
        asked = await self._fan_out.each(asks, call.caller)
        parts = dict(asked.answers)
        lines = _merged(parts, places)
        named = self._fan_out.reach.named
        return AuditPage(
            lines=tuple(lines),
            next=token_of(places),
            more=any(part.more for part in parts.values()),
            away=tuple(named(node) for node, _ in asked.silent),
            broken=tuple(f"{named(node)}: {part.broken}" for node, part in parts.items() if part.broken),
        )

    def _nodes(self, wanted: str) -> list[NodeId]:
        """Raises `NotFound`."""
        nodes = [node.id for node in self._directory.nodes() if wanted in ("", node.id)]
        if not nodes:
            raise NotFound("no such node")
        return nodes[:_NODES_IN_PLACE]


def _merged(parts: dict[NodeId, NodeAuditPart], places: dict[str, int]) -> list[AuditLine]:
    """In the order of time; `places` is moved to what is shown. Nothing is shown that is later than what a node with
    more has told: its next lines may come before."""
    end = min((part.seen for part in parts.values() if part.more), default=None)
    lines = list[AuditLine]()
    for node, part in parts.items():
        shown = 0
        while shown < len(part.lines) and (end is None or part.lines[shown].at <= end):
            shown += 1
        lines += [AuditLine(host=node, at=each.at, entry=each.entry) for each in part.lines[:shown]]
        if shown < len(part.lines):
            if shown:
                places[node] = part.lines[shown - 1].position
        elif part.position is not None:
            places[node] = part.position
    lines.sort(key=lambda line: line.at)
    return lines


def fleet_audit(directory: Directory, peers: Peers) -> FleetAudit:
    return FleetAudit(directory, FanOut(Reach(directory, peers)))
