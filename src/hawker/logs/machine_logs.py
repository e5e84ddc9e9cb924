"""Takes the output of the node's machines, and what happened to them, into the logs of their apps.

The ring of an instance is the buffer in front: what was written while no daemon ran is taken from there later, by its
position. Before a ring goes, with its machine or for the next instance, all of it is taken (`drain`). A machine never
waits for its log: who writes faster than an app's share has the oldest of its ring written over, and a line tells it.
"""

import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.abc
import msgspec
import zstandard
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.fair.threads import Pool, in_thread, on_behalf_of
from hawker.ids import AppName, MachineId
from hawker.log import bind
from hawker.logs.app_log import AppLog, LogLimits, LogPart, PositionedLine, Wanted
from hawker.logs.line import (
    LINE_BYTES,
    OPEN_FOR_NS,
    Cursor,
    KeptLine,
    MachineFacts,
    closed_lines,
    event_line,
    lines_of,
    lost_line,
    size_of,
)
from hawker.record.app import APPS
from hawker.record.machine import BY_APP, DESTROYED, EVENTS, MACHINES, EventRecord, MachineRecord
from hawker.runtime.driver import Driver, OutputChunk
from hawker.store.contract import Bucket, Reader, keys_of
from hawker.value_object import ValueObject

T = TypeVar("T")

LOOK_FIRST_S, LOOK_LAST_S = 0.1, 1.6
APP_BYTES_PER_S = 8 << 20
"""The bytes a second of lines that are taken of one app on one node in the long run, each counted with what it costs
beside its text."""

_DRAIN_S, _CATCH_UP_S = 2.0, 0.5
_TRIM_EVERY_S = 60.0
_LOOK_BYTES = 4 << 20  # of lines in one frame, and what one machine has beyond it
_READS = 8  # of one machine's ring in one look, of 4 MiB at the most each
_RELEASE = "fly_release_version"
_WAITING_WORDS = 100  # of one app
_FAILURES = (
    HawkerError,
    OSError,
    ValueError,
    ArithmeticError,
    struct.error,
    msgspec.MsgspecError,
    zstandard.ZstdError,
)
"""The errors that keeping an app's log may raise, whatever its machines wrote or a disk made of it: trouble of that app
alone."""

_log = bind("hawker.logs")


class _Watched:
    """An app: which of its machines changed, which run, who reads. `turn` is which of them is looked at first; `begun`
    and `ended` count looks, and `looked` is set when one has ended."""

    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.wake = anyio.Event()
        self.grown = anyio.Event()
        self.looked = anyio.Event()
        self.begun, self.ended = 0, 0
        self.changed: set[MachineId] = set()
        self.words: list[KeptLine] = []
        self.running: dict[MachineId, MachineRecord] = {}
        self.readers, self.turn = 0, 0
        self.busy, self.failing = False, False
        self.log: AppLog | None = None

    def tell_looked(self) -> None:
        looked, self.looked = self.looked, anyio.Event()
        looked.set()


class _OfApp(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of a machine's record before its app's turn."""

    app: AppName


_THERE, _GONE = (Bucket(bucket.name, _OfApp) for bucket in (MACHINES, DESTROYED))
_RECORDS_AT_ONCE = 16  # each up to a MiB


class _Look(ValueObject, frozen=True):
    record: MachineRecord
    events: Sequence[EventRecord]
    closing: bool = False


class MachineLogs:
    """The logs of the machines of one node. Safe in one event loop. `counts` are since its daemon began: lines that
    were kept on the disk, sent to the collector, dropped before they could be sent; pieces of output that were lost
    because a machine wrote faster than they were taken."""

    def __init__(self, directory: Path, store: Reader, driver: Driver, clock: Clock, limits: LogLimits) -> None:
        self._directory = directory
        self._store = store
        self._driver = driver
        self._clock = clock
        self._limits = limits
        self._apps: dict[AppName, _Watched] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self.counts = Counter(kept=0, lost=0, sent=0, dropped=0)

    async def serve(self) -> None:
        """Takes the output of machines, until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            for bucket in (_THERE, _GONE):
                for number, key in enumerate(keys_of(self._store, bucket), 1):
                    record = self._store.get(bucket, key)
                    if record is not None:
                        self._note(record.app, MachineId(key))
                    if number % _RECORDS_AT_ONCE == 0:
                        await checkpoint()
            while True:
                await self._trim()
                await self._clock.sleep(_TRIM_EVERY_S)

    def changed(self, machine_id: MachineId) -> None:
        """A machine's record has changed. Does not block."""
        record = self._store.get(MACHINES, machine_id) or self._store.get(DESTROYED, machine_id)
        if record is not None:
            self._note(record.app, machine_id)

    def say(self, app: AppName, line: KeptLine) -> None:
        """A word of the node's own about an app. Does not block; of many that wait the later ones are lost."""
        if self._store.get(APPS, app) is None:
            return
        watched = self._watched(app)
        if len(watched.words) < _WAITING_WORDS:
            watched.words.append(line)
        self._wake(app, watched)

    async def drain(self, machine_id: MachineId, next_instance: str = "") -> None:
        """Take all that is there of the machine, whose ring is about to go or to be another instance's. Waits
        2 s for its turn; what the disk holds up by then is waited for."""
        record = self._store.get(MACHINES, machine_id)
        if record is None or record.running is None or record.running.instance_id == next_instance:
            return
        if self._has_all(record.app, machine_id, record.running.instance_id):
            return
        with anyio.move_on_after(_DRAIN_S), suppress(*_FAILURES):
            await self._take(record.app, [_Look(record, (), closing=True)])

    def _has_all(self, app: AppName, machine_id: MachineId, instance: str) -> bool:
        """Whether the log that is open has an ended instance's last line: then a start need not wait for its turn
        among the machines that write."""
        watched = self._apps.get(app)
        if watched is None or watched.log is None or watched.log.directory != self.directory_of(app):
            return False
        cursor = watched.log.cursors.get(machine_id)
        return cursor is not None and cursor.closed and cursor.instance == instance

    def directory_of(self, app: AppName) -> Path | None:
        """The directory of an app's log; None for an app that this node does not know. Another app of the same name has
        another one."""
        known = self._store.get(APPS, app)
        return None if known is None else self._directory / known.id

    async def ask(self, app: AppName, question: Callable[[AppLog], T]) -> T | None:
        """The answer that `question`, which may block, gives about the app's log; None for an app without one here.
        What is made of many lines is best made there: it holds the event loop up by nothing but its share of the
        lock."""
        log = await self._log_of(app)
        return None if log is None else await in_thread(Pool.LOGS, question, log)

    async def read(self, app: AppName, after: int, *, most_lines: int, most_bytes: int) -> LogPart:
        """A part of the app's log, as `AppLog.read` gives it."""
        part = await self.ask(app, lambda log: log.read(after, most_lines=most_lines, most_bytes=most_bytes))
        return LogPart(lines=(), position=after) if part is None else part

    async def tail(
        self, app: AppName, count: int, *, since: int = 0, wanted: Wanted | None = None, within_s: float = 0.0
    ) -> LogPart:
        """The end of the app's log, as `AppLog.tail` gives it, by so many looks as begin `within_s` seconds, and one at
        least: others have their turns in between, and who goes away is not worked for any longer."""
        until = self._clock.monotonic() + within_s
        found, end, before, more = list[PositionedLine](), -1, None, True
        while more:
            look = partial(AppLog.tail, count=count - len(found), before=before, since=since, wanted=wanted)
            part = await self.ask(app, look)
            if part is None:
                break
            found, end, before = [*part.lines, *found], max(end, part.position), part.begin
            more = part.more and self._clock.monotonic() < until
        return LogPart(lines=found, position=end)

    async def wait(self, app: AppName, after: int, timeout_s: float) -> None:
        """Waits until the app's log has something past position `after`, or the time is over."""
        watched = self._watched(app)
        watched.readers += 1
        watched.wake.set()
        try:
            with anyio.move_on_after(timeout_s):
                while True:
                    grown = watched.grown
                    log = await self._log_of(app)
                    if log is not None and log.position > after:
                        return
                    await grown.wait()
        finally:
            watched.readers -= 1
            self._let_go(app, watched)

    async def catch_up(self, app: AppName) -> None:
        """Catches up: what the app's machines have written, and what has happened to them, is in the log when this
        returns, as far as one look takes it. Waits 0.5 s at most."""
        watched = self._apps.get(app)
        if watched is None:
            return
        begun = watched.begun  # it may have passed by what is new
        watched.wake.set()
        with anyio.move_on_after(_CATCH_UP_S):
            while watched.busy and watched.ended <= begun:
                await watched.looked.wait()

    # Looking.

    def _watched(self, app: AppName) -> _Watched:
        return self._apps.setdefault(app, _Watched())

    def _let_go(self, app: AppName, watched: _Watched, *, log_too: bool = False) -> None:
        """Of an app of which nothing runs and nobody reads nothing stays in memory; an open log until the next trim,
        since its machine may be one that is started again and again."""
        idle = not (watched.readers or watched.busy or watched.running or watched.changed or watched.words)
        idle = idle and not watched.lock.locked() and (log_too or watched.log is None)
        if idle and self._apps.get(app) is watched:
            del self._apps[app]

    def _note(self, app: AppName, machine_id: MachineId) -> None:
        watched = self._watched(app)
        watched.changed.add(machine_id)
        self._wake(app, watched)

    def _wake(self, app: AppName, watched: _Watched) -> None:
        watched.wake.set()
        if not watched.busy and self._tasks is not None:
            watched.busy = True
            self._tasks.start_soon(self._follow, app, watched)

    async def _follow(self, app: AppName, watched: _Watched) -> None:
        """While machines of the app run, or something of them is new."""
        pause_s = LOOK_FIRST_S
        try:
            with on_behalf_of(app):
                while watched.changed or watched.running or watched.words:
                    watched.wake = anyio.Event()
                    watched.begun += 1
                    size = await self._look(app, watched)
                    watched.ended += 1
                    watched.tell_looked()
                    pause_s = LOOK_FIRST_S if size else min(2 * pause_s, LOOK_LAST_S)
                    if watched.readers:
                        pause_s = LOOK_FIRST_S
                    await self._clock.sleep(max(LOOK_FIRST_S, size / APP_BYTES_PER_S))
                    with anyio.move_on_after(pause_s - LOOK_FIRST_S):
                        await watched.wake.wait()
        finally:
            watched.busy = False
            watched.tell_looked()
            self._let_go(app, watched)

    async def _look(self, app: AppName, watched: _Watched) -> int:
        """Bytes of lines that came."""
        changed, watched.changed = watched.changed, set()
        words, watched.words = watched.words, []
        looks = list[_Look]()
        log = None
        try:
            log = await self._log_of(app)
        except _FAILURES as error:
            self._failed(app, watched, error)
        if log is None:
            watched.running.clear()
            return 0
        for number, machine_id in enumerate(changed, 1):
            if number % _RECORDS_AT_ONCE == 0:
                await checkpoint()
            record = self._store.get(MACHINES, machine_id)
            if record is not None and record.running is not None and record.running.exit is None:
                watched.running[machine_id] = record
            else:
                watched.running.pop(machine_id, None)
            record = record or self._store.get(DESTROYED, machine_id)
            if record is not None:
                seen = log.cursors.get(machine_id, Cursor()).event
                after = f"{machine_id}/{seen}" if seen else None
                events = [event for _, event in self._store.scan(EVENTS, f"{machine_id}/", after=after)]
                looks.append(_Look(record, events))
        running = [record for key, record in watched.running.items() if key not in changed]
        watched.turn = (watched.turn + 1) % max(1, len(running))
        looks += [_Look(record, ()) for record in (*running[watched.turn :], *running[: watched.turn])]
        try:
            return await self._take(app, looks, words)
        except _FAILURES as error:
            watched.changed |= changed
            self._failed(app, watched, error)
            return 0

    def _failed(self, app: AppName, watched: _Watched, error: Exception) -> None:
        if not watched.failing:
            _log.error("output of machines is not kept", extra={"app": app, "error": str(error)})
        watched.failing = True

    async def _take(self, app: AppName, looks: Sequence[_Look], words: Sequence[KeptLine] = ()) -> int:
        """All that is new. Raises `OSError`."""
        watched = self._watched(app)
        async with watched.lock:
            log = await self._log_of(app)
            if log is None or not (looks or words):
                return 0
            size = await in_thread(Pool.LOGS, self._taken, log, looks, words)
            watched.failing = False
            if size:
                grown, watched.grown = watched.grown, anyio.Event()
                grown.set()
        return size

    def _taken(self, log: AppLog, looks: Sequence[_Look], words: Sequence[KeptLine]) -> int:
        """In frames of bounded size, each with the cursors behind its lines."""
        now_ns = int(self._clock.now() * 1e9)
        lines, cursors, size, kept = list(words), dict[str, Cursor](), size_of(words), 0
        for look in looks:
            if kept + size > _LOOK_BYTES and not (look.events or look.closing):
                continue  # its turn comes
            before = log.cursors.get(look.record.id, Cursor())
            for found, cursor in self._of_machine(look, before, now_ns):
                lines += found
                size += size_of(found)
                if cursor != before:
                    cursors[look.record.id] = before = cursor
                if size >= _LOOK_BYTES:
                    self._keep(log, lines, cursors)
                    lines, cursors, size, kept = [], {}, 0, kept + size
        self._keep(log, lines, cursors)
        return kept + size

    def _keep(self, log: AppLog, lines: list[KeptLine], cursors: Mapping[str, Cursor]) -> None:
        if lines or cursors:
            lines.sort(key=lambda line: line.at)
            log.append(lines, cursors)
            self.counts["kept"] += len(lines)

    def _of_machine(self, look: _Look, cursor: Cursor, now_ns: int) -> Iterator[tuple[list[KeptLine], Cursor]]:
        """What it wrote in portions, each with the cursor behind it; with the last one what happened to it."""
        running, lines = look.record.running, list[KeptLine]()
        facts, instance = _facts(look.record), "" if running is None else running.instance_id
        if instance and instance != cursor.instance:
            lines, cursor = closed_lines(facts, cursor.open), Cursor(instance=instance, event=cursor.event)
        came = whole = False
        if instance and not cursor.closed:
            for chunks in self._output(look.record.id, cursor.after, whole=look.closing or bool(look.events)):
                whole = not chunks
                if whole:
                    break
                missing = chunks[0].position - cursor.after - 1
                if missing > 0:
                    self.counts["lost"] += missing
                    lines.append(lost_line(facts, int(chunks[0].at * 1e9), missing))
                more, kept = lines_of(facts, chunks, cursor.open)
                cursor = replace(cursor, after=chunks[-1].position, open=kept)
                yield lines + more, cursor
                lines, came = [], True
        exited = running is not None and running.exit is not None
        ended = look.closing or exited
        old = [each for each in cursor.open if ended or (not came and abs(now_ns - each.at) > OPEN_FOR_NS)]
        lines += closed_lines(facts, old) + [event_line(facts, event) for event in look.events]
        yield (
            lines,
            replace(
                cursor,
                event=look.events[-1].id if look.events else cursor.event,
                closed=cursor.closed or look.closing or (exited and whole),
                open=tuple(each for each in cursor.open if each not in old),
            ),
        )

    def _output(self, machine_id: MachineId, after: int, *, whole: bool) -> Iterator[Sequence[OutputChunk]]:
        """What is there in portions of a frame each, only the first unless `whole`; an empty one where that is all: an
        instance writes nothing more once its exit is known."""
        with suppress(HawkerError, OSError):
            for _ in range(_READS):
                chunks = self._driver.output(machine_id, after=after)
                for portion in _portions(chunks):
                    yield portion
                    if not whole:
                        return
                if not chunks:
                    yield ()
                    return
                after = chunks[-1].position

    # The files.

    async def _log_of(self, app: AppName) -> AppLog | None:
        """None for an app that this node does not know. Raises `OSError`."""
        directory = self.directory_of(app)
        if directory is None:
            return None
        watched = self._apps.get(app)
        if watched is not None and watched.log is not None and watched.log.directory == directory:
            return watched.log
        if watched is None and not directory.exists():
            return None
        log = await in_thread(Pool.LOGS, AppLog, directory, self._limits, self._clock.now())
        if watched is None or self._apps.get(app) is not watched:
            return log
        if watched.log is None or watched.log.directory != directory:
            watched.log = log
        return watched.log

    async def _trim(self) -> None:
        """Also what is left of apps that are gone, and of the cursors of machines that are."""
        known = {record.id: app for app, record in self._store.scan(APPS)}
        for app, watched in list(self._apps.items()):
            if watched.log is not None:
                there = {key.id for _, key in self._store.scan(BY_APP, f"{app}/")}
                gone = [each for each in watched.log.cursors if each not in there and self._forgotten(MachineId(each))]
                watched.log.forget(gone)
            self._let_go(app, watched, log_too=True)
        with suppress(OSError):
            logs = {watched.log.directory: watched.log for watched in self._apps.values() if watched.log is not None}
            await in_thread(Pool.LOGS, self._trimmed, frozenset(known), logs, self._clock.now())

    def _forgotten(self, machine_id: MachineId) -> bool:
        return not self._store.sizes(DESTROYED, machine_id, limit=1)

    def _trimmed(self, known: frozenset[str], logs: Mapping[Path, AppLog], now: float) -> None:
        if not self._directory.is_dir():
            return
        for each in list(self._directory.iterdir()):
            if each.name not in known:
                shutil.rmtree(each, ignore_errors=True)
                continue
            with suppress(*_FAILURES):
                (logs.get(each) or AppLog(each, self._limits, now)).trim(now)


def _portions(chunks: Iterable[OutputChunk]) -> Iterator[Sequence[OutputChunk]]:
    """Each of one frame's lines: they are counted before they are made."""
    portion, size = list[OutputChunk](), 0
    for chunk in chunks:
        portion.append(chunk)
        size += len(chunk.data) + LINE_BYTES * chunk.data.count(b"\n")
        if size >= _LOOK_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _facts(record: MachineRecord) -> MachineFacts:
    config = record.config if record.previous is None else record.previous.config
    return MachineFacts(
        machine=record.id,
        containers=tuple(each.name or "" for each in config.containers or ()),
        release=(record.config.metadata or {}).get(_RELEASE, ""),
    )
