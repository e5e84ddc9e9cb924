"""An app's log as it is printed: page by page, each with the place that it goes on from. So every line comes once, also
when the node that answers, or one that has machines, is away meanwhile."""

import sys
from collections.abc import Callable, Mapping

import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.app import AppParams
from hawker.api.contract.app_log import APP_LOG_PAGE, LONGEST_WAIT_S, AppLogPage, AppLogPageQuery, LogLine
from hawker.api.failure import ConnectionLost
from hawker.cli.log_stream import moment_of
from hawker.cli.output import note
from hawker.clock import Clock, SystemClock
from hawker.errors import DeadlineExceeded, Unavailable
from hawker.value_object import ValueObject

_AGAIN_S = 0.5
_GIVE_UP_S = 600.0  # without a word from the node
_CALL_S = LONGEST_WAIT_S + 10

WriteLine = Callable[[LogLine], None]


class WantedLines(ValueObject, frozen=True, kw_only=True):
    """Which part of an app's log."""

    follow: bool = False
    tail: int | None = None
    since: float | None = None  # Unix seconds
    machine: str = ""
    region: str = ""
    release: str = ""


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
