"""Logs over the fleet: what each node that knows an app has of its log, and what each node wrote to its audit log,
merged by time.
"""

from collections.abc import AsyncIterator, Sequence
from functools import partial

import anyio
import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.app_log import (
    APP_LOG,
    APP_LOG_PAGE,
    LONGEST_WAIT_S,
    NODE_LOG,
    AppLogLinesQuery,
    AppLogPage,
    AppLogPageQuery,
    LogLine,
    NodeLogPart,
    NodeLogQuery,
    places_of,
    token_of,
)
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
from hawker.clock import Clock
from hawker.errors import DeadlineExceeded, Fault, HawkerError, NotFound, RateLimited, Unavailable
from hawker.fair.table import FOLLOWERS_OF_FLEET_LOG
from hawker.fair.turns import Turns
from hawker.gateway.fan_out import FanOut, Reach
from hawker.ids import AppName, NodeId
from hawker.permission import Action, Attempt

WINDOW_S = 0.3
EACH_S = 5.0
"""The seconds that a node may take beyond the time that it was told to wait."""

MOST_NODES = 400
_AWAY_PAUSE_S = 1.0
_BEGAN = "*"
"""Among the places of a token: since when, Unix milliseconds, a node is shown that the token does not name."""
_SILENT = (Unavailable, DeadlineExceeded, Fault, RateLimited)


class _Round:
    """One page's questions to `left` nodes."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.parts: dict[NodeId, NodeLogPart] = {}
        self.away: set[NodeId] = set()
        self.absent: set[NodeId] = set()
        self.refused: list[HawkerError] = []
        self.first = anyio.Event()
        self.all = anyio.Event()


class FleetLogs:
    def __init__(self, directory: Directory, reach: Reach, clock: Clock) -> None:
        self._directory = directory
        self._reach = reach
        self._clock = clock
        self._followers = Turns(FOLLOWERS_OF_FLEET_LOG)

    def bind(self, handlers: Handlers) -> None:
        handlers.on(APP_LOG_PAGE, self.page)
        handlers.stream(APP_LOG, self.follow)

    async def page(self, call: Call[AppParams, AppLogPageQuery, None]) -> AppLogPage:
        app = AppName(call.params.app_name)
        with self._followers.hold_now(app):
            return await self._page(app, call.query, call.behalf)

    async def follow(self, call: Call[AppParams, AppLogLinesQuery, None]) -> AsyncIterator[LogLine]:
        places_of(call.query.after)
        self._nodes(AppName(call.params.app_name), call.query.region)
        return self._followed(call)

    async def _followed(self, call: Call[AppParams, AppLogLinesQuery, None]) -> AsyncIterator[LogLine]:
        app, told = AppName(call.params.app_name), msgspec.structs.asdict(call.query)
        follow = told.pop("follow")
        query = AppLogPageQuery(**told, wait_s=LONGEST_WAIT_S if follow else 0.0)
        with self._followers.hold_now(app):
            while True:
                page = await self._page(app, query, call.behalf)
                for line in page.lines:
                    yield line
                if not (follow or page.more):
                    return
                query = msgspec.structs.replace(query, after=page.next, tail=None)

    def _nodes(self, app: AppName, region: str) -> list[NodeId]:
        """Raises `NotFound`."""
        nodes = self._directory.nodes_of_app(app)
        if not nodes:
            raise NotFound("app not found")
        return [node for node in nodes if not region or self._reach.region_of(node) == region][:MOST_NODES]

    async def _page(self, app: AppName, query: AppLogPageQuery, behalf: str) -> AppLogPage:
        """What is there; else, until `wait_s` is over, the first line and what comes within the window."""
        places, nodes = places_of(query.after), self._nodes(app, query.region)
        if _BEGAN not in places:
            begins = query.since if query.since is not None or query.tail is None else self._clock.now()
            places[_BEGAN] = int((begins or 0) * 1000)
        round_ = _Round(left=len(nodes))
        async with anyio.create_task_group() as tasks:
            for node in nodes:
                tasks.start_soon(self._ask, round_, node, app, _of_node(query, places, node), behalf)
            with anyio.move_on_after(query.wait_s + EACH_S):
                await round_.first.wait()
                with anyio.move_on_after(WINDOW_S):
                    await round_.all.wait()
            tasks.cancel_scope.cancel()
        if round_.refused:
            raise round_.refused[0]
        if round_.absent and len(round_.absent) == len(nodes):
            raise NotFound("app not found")
        lines, more = self._merged(round_, places, query.tail if not query.after else None)
        away = sorted(self._reach.named(node) for node in round_.away)
        return AppLogPage(lines=tuple(lines), next=token_of(places), more=more, away=tuple(away))

    async def _ask(self, round_: _Round, node: NodeId, app: AppName, query: NodeLogQuery, behalf: str) -> None:
        """Asks on while the node finds nothing of what it has: how far it came is kept, also where it comes no further
        in the time that there is."""
        until = self._clock.monotonic() + query.wait_s
        try:
            caller, looking = self._reach.caller(node, behalf), True
            while looking:
                with self._reach.errors(node, harmless=True):
                    part = await caller.call(
                        NODE_LOG, params=AppParams(app_name=app), query=query, timeout_s=query.wait_s + EACH_S
                    )
                round_.parts[node] = part
                wait_s = max(0.0, until - self._clock.monotonic())
                query = msgspec.structs.replace(query, after=part.position, tail=None, wait_s=wait_s)
                looking = part.more and not part.lines
            if part.lines:
                round_.first.set()
        except NotFound:
            round_.absent.add(node)
        except _SILENT:
            round_.away.add(node)
            await self._clock.sleep(min(query.wait_s, _AWAY_PAUSE_S))
        except HawkerError as error:
            round_.refused.append(error)
            round_.first.set()
        round_.left -= 1
        if not round_.left:
            round_.all.set()
            round_.first.set()

    def _merged(self, round_: _Round, places: dict[str, int], tail: int | None) -> tuple[Sequence[LogLine], bool]:
        """In the order of time; `places` is moved to what is shown. Of what is cut off nothing later than its end is
        shown, so that the next page goes on in order."""
        parts = round_.parts
        ends = [part.lines[-1].at for part in parts.values() if part.more and part.lines]
        end, lines = min(ends) if ends else None, list[LogLine]()
        for node, part in parts.items():
            shown = 0
            while shown < len(part.lines) and (end is None or part.lines[shown].at <= end):
                shown += 1
            lines += part.lines[:shown]
            if shown == len(part.lines):
                places[node] = part.position
            elif shown:
                places[node] = part.lines[shown - 1].position
        lines.sort(key=lambda line: line.at)
        more = any(part.more for part in parts.values())
        return lines if tail is None else lines[max(0, len(lines) - tail) :], more


def fleet_logs(directory: Directory, peers: Peers, clock: Clock) -> FleetLogs:
    return FleetLogs(directory, Reach(directory, peers), clock)


def _of_node(query: AppLogPageQuery, places: dict[str, int], node: NodeId) -> NodeLogQuery:
    """A node that was not there for the first page has no last lines, only what came since."""
    later = bool(query.after)
    return NodeLogQuery(
        after=places.get(node),
        tail=None if later else query.tail,
        since=places[_BEGAN] / 1000 if later else query.since,
        machine=query.machine,
        release=query.release,
        wait_s=query.wait_s,
    )


PAGE_BYTES = 4 << 20
"""The bytes of the lines of all nodes together on a page, or 16 KiB of each where that is more."""
_LEAST_BYTES = 16 << 10
_NODES_IN_PLACE = 400


class FleetAudit:
    def __init__(self, directory: Directory, fan_out: FanOut) -> None:
        self._directory = directory
        self._fan_out = fan_out

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_AUDIT, self.page)

    async def page(self, call: Call[NoParams, AuditQuery, None]) -> AuditPage:
        """A page of the audit logs of all nodes, or of one. Who reads what everybody did may as well do it: a token to
        read with does not suffice. Raises `Forbidden`, `BadRequest`, `NotFound`, and what a node refuses."""
        call.grant.check(Attempt(Action.CONTROL))
        query, places = call.query, places_of(call.query.after)
        nodes = self._nodes(query.node)
        most_bytes = min(NODE_BYTES, max(_LEAST_BYTES, PAGE_BYTES // max(1, len(nodes))))
        selection = {name: getattr(query, name) for name in AuditSelection.__struct_fields__}
        plain = NodeAuditQuery(most_bytes=most_bytes, **selection)

        async def one(wanted: NodeAuditQuery, caller: Caller) -> NodeAuditPart:
            return await caller.call(NODE_AUDIT, query=wanted)

        asks = {node: partial(one, msgspec.structs.replace(plain, after=places.get(node))) for node in nodes}
        asked = await self._fan_out.each(asks, call.behalf)
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
