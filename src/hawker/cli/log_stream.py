"""Output of machines as it is printed: whose line it is and when it came, one machine's or a whole app's in the order
of time; and following it over restarts of the node. An app's log comes page by page, each with the place that it goes
on from: every line once, also when the node that answers, or one that has machines, is away meanwhile.
"""

import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from heapq import heappop, heappush

import anyio
import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.app_log import APP_LOG_PAGE, LONGEST_WAIT_S, AppLogPage, AppLogPageQuery, LogLine
from hawker.api.contract.exec import MACHINE_LOGS, LogsQuery
from hawker.api.contract.machine import MachineParams
from hawker.api.contract.node import LogChunk
from hawker.api.failure import ConnectionLost
from hawker.cli.output import note
from hawker.clock import Clock, SystemClock
from hawker.errors import DeadlineExceeded, NotFound, Unavailable
from hawker.value_object import ValueObject

_AGAIN_FIRST_S, _AGAIN_LAST_S = 0.5, 5.0
_GIVE_UP_S = 600.0  # without a word from the node

Write = Callable[[LogChunk], None]


class Prefix:
    """What stands before each line. It remembers, for each stream, whose line is not at its end yet. Several machines'
    lines may share one, so that no line breaks into another."""

    def __init__(self, *, timestamps: bool = False) -> None:
        self._open: dict[int, tuple[str, str]] = {}
        self._timestamps = timestamps

    def told(self, chunk: LogChunk, machine: str = "") -> bytes:
        """The bytes to write to the chunk's stream. A line that another one breaks into is ended first; the output of
        one machine without containers is as it was."""
        whose, head = (machine, chunk.container), self._head(chunk, machine)
        if not chunk.data or not (head or self._open):
            return chunk.data
        open_one = self._open.pop(chunk.stream, None)
        lines = chunk.data.splitlines(keepends=True)
        before = b"" if open_one is None or open_one == whose else b"\n"
        first = b"" if open_one == whose else head
        if not lines[-1].endswith((b"\n", b"\r")):
            self._open[chunk.stream] = whose
        return before + first + head.join(lines)

    def _head(self, chunk: LogChunk, machine: str) -> bytes:
        name = "/".join(part for part in (machine, chunk.container) if part)
        return f"{moment_of(chunk.at) if self._timestamps else ''}{f'{name} | ' if name else ''}".encode()


def moment_of(at: datetime) -> str:
    """ "2026-01-02T03:04:05.678Z ", of one width."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z "


class WantedOutput(ValueObject, frozen=True, kw_only=True):
    """Which part of a machine's output."""

    follow: bool = False
    """Go on with what comes, until the machine is gone."""
    tail: int | None = None
    """So many of the last lines, 0 or more; None: all that is there."""
    since: float | None = None  # Unix seconds


class Follower:
    """Prints a machine's output and remembers how far it came. `prefix` and `name` say whose the lines are where there
    are several."""

    def __init__(
        self,
        caller: Caller,
        params: MachineParams,
        write: Write | None = None,
        *,
        prefix: Prefix | None = None,
        name: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._caller, self._params, self._write = caller, params, write or self._write_bytes
        self._prefix, self._name = prefix or Prefix(), name
        self._clock = clock or SystemClock()
        self._after: int | None = None
        self._instance: str | None = None
        self.ended = anyio.Event()

    async def print(self, *, follow: bool, tail: int | None = None, since: float | None = None) -> None:
        """Raises `Unavailable` when the connection is lost."""
        async for chunk in self.chunks(WantedOutput(follow=follow, tail=tail, since=since)):
            self._write(chunk)
        if follow:
            self.ended.set()

    async def chunks(self, wanted: WantedOutput) -> AsyncIterator[LogChunk]:
        """From where the last call came to."""
        query = LogsQuery(
            follow=wanted.follow, tail=wanted.tail, since=wanted.since, after=self._after, instance=self._instance
        )
        try:
            async with self._caller.stream(MACHINE_LOGS, params=self._params, query=query) as found:
                async for chunk in found:
                    self._after, self._instance = chunk.position, chunk.instance or None
                    yield chunk
        except ConnectionLost as error:
            raise Unavailable("the connection to the node was lost") from error

    async def follow(self, wanted: WantedOutput) -> None:
        """Until the machine is destroyed; a node that went away is waited for. Raises `Unavailable` when it stays
        away."""
        pause_s, lost_at = _AGAIN_FIRST_S, 0.0
        while True:
            before = self._after
            try:
                await self.print(follow=True, tail=wanted.tail, since=wanted.since)
                return
            except Unavailable as error:
                now = self._clock.monotonic()
                if not lost_at or self._after != before:
                    note(f"{error}; waiting for it to come back")
                    lost_at, pause_s = now, _AGAIN_FIRST_S
                if now - lost_at > _GIVE_UP_S:
                    raise
            await self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _AGAIN_LAST_S)
            if self._after is not None:
                wanted = WantedOutput(follow=True)

    def write(self, chunk: LogChunk) -> None:
        self._write(chunk)

    def _write_bytes(self, chunk: LogChunk) -> None:
        """To the stream that they were written to."""
        stream = sys.stderr if chunk.stream == 2 else sys.stdout
        stream.buffer.write(self._prefix.told(chunk, self._name))
        stream.buffer.flush()

    async def print_rest(self) -> None:
        """What came between the last look and the end; of a destroyed machine there may be nothing left."""
        with suppress(NotFound):
            await self.print(follow=False)


async def print_merged(followers: Sequence[Follower], wanted: WantedOutput) -> None:
    """What several machines wrote until now, in the order of time; at most one piece of each is held. One that is
    destroyed meanwhile is left out."""
    waiting: list[tuple[datetime, int, LogChunk]] = []
    recorded = WantedOutput(tail=wanted.tail, since=wanted.since)
    async with AsyncExitStack() as stack:
        sources = [each.chunks(recorded) for each in followers]
        for source in sources:
            stack.push_async_callback(_close, source)
        for place, source in enumerate(sources):
            await _take(waiting, place, source)
        while waiting:
            _, place, chunk = heappop(waiting)
            followers[place].write(chunk)
            await _take(waiting, place, sources[place])


async def _take(waiting: list[tuple[datetime, int, LogChunk]], place: int, source: AsyncIterator[LogChunk]) -> None:
    with suppress(NotFound):
        chunk = await anext(source, None)
        if chunk is not None:
            heappush(waiting, (chunk.at, place, chunk))


async def _close(source: AsyncIterator[LogChunk]) -> None:
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()


async def follow_all(followers: Sequence[Follower]) -> None:
    """What comes, as it comes, from where each one is. Until all are destroyed."""
    async with anyio.create_task_group() as tasks:
        for each in followers:
            tasks.start_soon(each.follow, WantedOutput(follow=True))


_AGAIN_S = 0.5
_CALL_S = LONGEST_WAIT_S + 10

WriteLine = Callable[[LogLine], None]


class WantedLines(ValueObject, frozen=True, kw_only=True):
    """Which part of an app's log."""

    follow: bool = False
    """Go on with what comes, without an end."""
    tail: int | None = None
    """So many of the last lines, 0 or more; None: all that is there."""
    since: float | None = None  # Unix seconds
    machine: str = ""
    """Only of this id; empty: of all."""
    region: str = ""
    """Only of this code; empty: of all."""
    release: str = ""
    """Only of machines of this number; empty: of all."""


class LinePrinter:
    """`names` are those of the machines that are there, by id: of others the id is shown. The nodes' own words go to
    stderr."""

    def __init__(self, names: Mapping[str, str], *, timestamps: bool = False) -> None:
        self._names = names
        self._timestamps = timestamps
        self._width = max(map(len, names.values()), default=0)

    def __call__(self, line: LogLine) -> None:
        name = self._names.get(line.machine, line.machine) or line.provider
        if line.container:
            name += f"/{line.container}"
        mark, stream = (
            ("*", sys.stderr) if line.stream == 0 else ("|", (sys.stderr if line.stream == 2 else sys.stdout))
        )
        at = moment_of(line.at) if self._timestamps else ""
        stream.buffer.write(f"{at}{name.ljust(self._width)} {mark} {line.text}\n".encode())
        stream.buffer.flush()


class AppLogFollower:
    """Remembers how far it came."""

    def __init__(self, caller: Caller, app: str, write: WriteLine, clock: Clock | None = None) -> None:
        self._caller = caller
        self._app = app
        self._write = write
        self._clock = clock or SystemClock()
        self._away: tuple[str, ...] = ()

    async def print(self, wanted: WantedLines) -> None:
        """What is there, and with `follow` what comes. Raises `Unavailable` when no node answers for long, and what the
        node answers."""
        query = AppLogPageQuery(
            tail=wanted.tail,
            since=wanted.since,
            machine=wanted.machine,
            region=wanted.region,
            release=wanted.release,
        )
        while True:
            page = await self._page(query, patient=wanted.follow)
            for line in page.lines:
                self._write(line)
            if not (page.more or wanted.follow):
                return
            wait_s = 0.0 if page.more else LONGEST_WAIT_S
            query = msgspec.structs.replace(query, after=page.next, tail=None, wait_s=wait_s)

    async def _page(self, query: AppLogPageQuery, *, patient: bool) -> AppLogPage:
        lost_at: float | None = None
        while True:
            try:
                params = AppParams(app_name=self._app)
                page = await self._caller.call(APP_LOG_PAGE, params=params, query=query, timeout_s=_CALL_S)
            except (Unavailable, DeadlineExceeded, ConnectionLost) as error:
                now = self._clock.monotonic()
                if lost_at is None:
                    note(f"{error}; waiting for it to come back" if patient else str(error))
                    lost_at = now
                if not patient or now - lost_at > _GIVE_UP_S:
                    raise
                await self._clock.sleep(_AGAIN_S)
                continue
            self._tell_away(page.away)
            return page

    def _tell_away(self, away: tuple[str, ...]) -> None:
        """Each once, until it is back."""
        for node in away:
            if node not in self._away:
                note(f"{node} does not answer: its lines come when it is back")
        self._away = away
