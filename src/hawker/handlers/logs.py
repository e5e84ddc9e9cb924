"""Answers about what this node has of the logs of apps, and what its audit log has, which is written where calls come
in.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hawker.api.contract.app import AppParams
from hawker.api.contract.app_log import LINES_IN_PAGE, NODE_LOG, PAGE_BYTES, LogLine, NodeLogPart, NodeLogQuery
from hawker.api.contract.audit import NODE_AUDIT, AuditSelection, NodeAuditLine, NodeAuditPart, NodeAuditQuery
from hawker.api.handlers import answers
from hawker.api.route import Call, NoParams
from hawker.clock import Clock
from hawker.deferred import deferred
from hawker.errors import Unavailable
from hawker.fair.table import FOLLOWERS_OF_LOG
from hawker.fair.threads import Pool, in_thread
from hawker.fair.turns import Turns
from hawker.ids import AppName
from hawker.logs.app_log import AppLog, LogPart, Wanted
from hawker.logs.line import KeptLine
from hawker.logs.machine_logs import MachineLogs
from hawker.record.node import NodeRecord
from hawker.store.contract import Reader
from hawker.worker.apps import AppTable

if TYPE_CHECKING:
    from hawker.audit import audit_log
else:
    audit_log = deferred("hawker.audit.audit_log")

_TAIL_S = 3.0  # for the last lines: a caller waits 5 s for them
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
        """The lines that are there, and for a caller who begins to read also those that were about to be; where that is
        nothing, what comes within the time that the caller has. `more` without lines: it has looked at much that is not
        wanted."""
        app, query = self._apps.get(self._store, call.params.app_name).name, call.query
        if self._logs is None:
            return NodeLogPart(lines=(), position=-1 if query.after is None else query.after)
        if query.after is None:
            await self._logs.catch_up(app)
        if query.after is None and query.tail is not None:
            part = await self._tail(self._logs, app, query, query.tail)
        else:
            part = await self._part(self._logs, app, query, query.after)
        if query.wait_s and not (part.lines or part.more):
            with self._followers.hold_now(app):
                part = await self._next(self._logs, app, query, part)
        return part

    async def _next(self, logs: MachineLogs, app: AppName, query: NodeLogQuery, part: NodeLogPart) -> NodeLogPart:
        """Past lines that are not wanted, until the time is over."""
        until = self._clock.monotonic() + query.wait_s
        while not (part.lines or part.more) and (left := until - self._clock.monotonic()) > 0:
            await logs.wait(app, part.position, left)
            part = await self._part(logs, app, query, part.position)
        return part

    async def _tail(self, logs: MachineLogs, app: AppName, query: NodeLogQuery, count: int) -> NodeLogPart:
        since, wanted = _selected(query)
        part = await logs.tail(app, count, since=since, wanted=wanted, within_s=_TAIL_S)
        return await in_thread(Pool.LOGS, self._told, part)

    async def _part(self, logs: MachineLogs, app: AppName, query: NodeLogQuery, after: int | None) -> NodeLogPart:
        part = await logs.ask(app, partial(self._read, query, after))
        return NodeLogPart(lines=(), position=-1 if after is None else after) if part is None else part

    def _read(self, query: NodeLogQuery, after: int | None, log: AppLog) -> NodeLogPart:
        """In a thread."""
        since, wanted = _selected(query)
        after = -1 if after is None else after
        part = log.read(after, most_lines=LINES_IN_PAGE, most_bytes=PAGE_BYTES, since=since, wanted=wanted)
        return self._told(part)

    def _told(self, part: LogPart) -> NodeLogPart:
        return NodeLogPart(lines=tuple(self._shown(part)), position=part.position, more=part.more)

    def _shown(self, part: LogPart) -> Iterator[LogLine]:
        """Lines of one piece of output have one time, and many lines are of one."""
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


def _selected(query: NodeLogQuery) -> tuple[int, Wanted | None]:
    """Since when, Unix nanoseconds, and which."""
    return int((query.since or 0) * 1e9), partial(_wanted, query) if query.machine or query.release else None


def _wanted(query: NodeLogQuery, line: KeptLine) -> bool:
    return query.machine in ("", line.machine) and query.release in ("", line.release)


class AuditHandlers:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @answers(NODE_AUDIT)
    async def read(self, call: Call[NoParams, NodeAuditQuery, None]) -> NodeAuditPart:
        return await in_thread(Pool.QUERIES, self._read, call.query)

    def _read(self, query: NodeAuditQuery) -> NodeAuditPart:
        """Raises `Unavailable`."""
        wanted = audit_log.WantedEntries(**{name: getattr(query, name) for name in AuditSelection.__struct_fields__})
        try:
            piece = audit_log.read_piece(self._directory, wanted, query.after, most_bytes=query.most_bytes)
        except OSError as error:
            raise Unavailable(f"the audit log cannot be read: {error.strerror}") from error
        return NodeAuditPart(
            lines=tuple(
                NodeAuditLine(
                    at=each.entry.at, entry=each.line.decode(errors="replace").rstrip("\n"), position=each.position
                )
                for each in piece.found
            ),
            position=piece.position,
            seen=piece.seen,
            more=piece.more,
            broken="" if piece.broken is None else f"{_where(piece.broken.number)}: {piece.broken.why}",
        )


def _where(number: int | None) -> str:
    return "a line" if number is None else f"entry {number}"
