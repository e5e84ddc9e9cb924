"""Answers about what this node has of the logs of apps."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

from hawker.api.contract.app import AppParams
from hawker.api.contract.app_log import LINES_IN_PAGE, NODE_LOG, PAGE_BYTES, LogLine, NodeLogPart, NodeLogQuery
from hawker.api.handlers import answers
from hawker.api.route import Call
from hawker.clock import Clock
from hawker.fair.table import FOLLOWERS_OF_LOG
from hawker.fair.turns import Turns
from hawker.ids import AppName
from hawker.logs.app_log import AppLog, LogPart
from hawker.logs.line import KeptLine
from hawker.logs.machine_logs import MachineLogs
from hawker.record.node import NodeRecord
from hawker.store.contract import Reader
from hawker.worker.apps import AppTable

_EPOCH = datetime.fromtimestamp(0, UTC)


class AppLogHandlers:
    """`logs` is None where none are kept: then they are empty."""

    def __init__(self, node: NodeRecord, store: Reader, apps: AppTable, clock: Clock, logs: MachineLogs | None) -> None:
        self._node = node
        self._store = store
        self._apps = apps
        self._clock = clock
        self._logs = logs
        self._followers = Turns(FOLLOWERS_OF_LOG)

    @answers(NODE_LOG)
    async def read(self, call: Call[AppParams, NodeLogQuery, None]) -> NodeLogPart:
        """What is there, and for who begins to read also what was about to be; where that is nothing, what comes within
        the time that the caller has."""
        app, query = self._apps.get(self._store, call.params.app_name).name, call.query
        if self._logs is None:
            return NodeLogPart(lines=(), position=-1 if query.after is None else query.after)
        if query.after is None:
            await self._logs.catch_up(app)
        part = await self._part(self._logs, app, query, query.after)
        if not part.lines and query.wait_s:
            with self._followers.hold_now(app):
                part = await self._next(self._logs, app, query, part)
        return part

    async def _next(self, logs: MachineLogs, app: AppName, query: NodeLogQuery, part: NodeLogPart) -> NodeLogPart:
        """Past lines that are not wanted, until the time is over."""
        until = self._clock.monotonic() + query.wait_s
        while not part.lines and (left := until - self._clock.monotonic()) > 0:
            await logs.wait(app, part.position, left)
            part = await self._part(logs, app, query, part.position)
        return part

    async def _part(self, logs: MachineLogs, app: AppName, query: NodeLogQuery, after: int | None) -> NodeLogPart:
        part = await logs.ask(app, partial(self._read, query, after))
        return NodeLogPart(lines=(), position=-1 if after is None else after) if part is None else part

    def _read(self, query: NodeLogQuery, after: int | None, log: AppLog) -> NodeLogPart:
        """In a thread. Lines of one piece of output have one time, and many lines are of one."""
        since = int((query.since or 0) * 1e9)
        wanted = partial(_wanted, query) if query.machine or query.release else None
        if after is None and query.tail is not None:
            part = log.tail(query.tail, since=since, wanted=wanted)
        else:
            after = -1 if after is None else after
            part = log.read(after, most_lines=LINES_IN_PAGE, most_bytes=PAGE_BYTES, since=since, wanted=wanted)
        return NodeLogPart(lines=tuple(self._shown(part)), position=part.position, more=part.more)

    def _shown(self, part: LogPart) -> Iterator[LogLine]:
        node, region, at, instant = self._node.id, self._node.region, -1, _EPOCH
        for each in part.lines:
            line = each.line
            if line.at != at:
                at, instant = line.at, datetime.fromtimestamp(line.at / 1e9, UTC)
            yield LogLine(
                at=instant,
                node=node,
                region=region,
                position=each.position,
                machine=line.machine,
                container=line.container,
                stream=line.stream,
                level=line.level,
                provider=line.provider,
                release=line.release,
                text=line.text,
            )


def _wanted(query: NodeLogQuery, line: KeptLine) -> bool:
    return query.machine in ("", line.machine) and query.release in ("", line.release)
