"""Read-only connections for SQL that strangers wrote: one reading statement at a time, nothing beside the catalog's own
tables, a deadline that the database itself asks for, and bounds on what one value or one statement may take.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from urllib.parse import quote

import apsw

from hawker.catalog.change import Value
from hawker.catalog.contract import Statement
from hawker.clock import Clock
from hawker.errors import BadRequest, DeadlineExceeded, Fault, Unavailable
from hawker.value_object import ValueObject

VALUE_BYTES = 2 * 1024 * 1024
SQL_BYTES = 1024 * 1024
SPARE = 8
HEAP_BYTES = 512 * 1024 * 1024  # of all of SQLite in the process
_STEPS_BETWEEN_LOOKS = 10_000
_BUSY_MS = 5_000
_BOUNDS = {
    apsw.SQLITE_LIMIT_LENGTH: VALUE_BYTES,
    apsw.SQLITE_LIMIT_SQL_LENGTH: SQL_BYTES,
    apsw.SQLITE_LIMIT_COLUMN: 500,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: 200,
    apsw.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    apsw.SQLITE_LIMIT_ATTACHED: 0,
}
READS = frozenset({apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE})
_WRITES = frozenset({apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE})
_FORBIDDEN_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"})
_SETUP = "PRAGMA query_only = 1; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -2048; PRAGMA trusted_schema = 0"

NOT_READING = "statement is not readonly"
_TOO_MUCH = "the statement took longer, or kept more, than it may; narrow it or raise its timeout"


class QueryCursor(ValueObject, frozen=True):
    """A statement that runs, and the names of what each row has."""

    cursor: apsw.Cursor
    columns: tuple[str, ...]
    """The names of the columns in the order of the answer."""

    def close(self) -> None:
        self.cursor.close(True)


class PreparedQuery(ValueObject, frozen=True):
    """A statement with its parameters written out, its columns, and the tables and views that it reads."""

    sql: str
    """Good until the schema changes."""
    columns: tuple[str, ...]
    """The names of the columns, in the order of the answer."""
    reads: frozenset[str]
    """Names in small letters."""


class ReadConnection:
    """A connection that only reads; used by one thread at a time. All methods block."""

    def __init__(self, file: Path, clock: Clock) -> None:
        self._clock = clock
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        self.connection = apsw.Connection(f"file:{quote(str(file))}?mode=ro", flags=flags)
        self.connection.set_busy_timeout(_BUSY_MS)
        self.connection.execute(_SETUP)
        for bound, value in _BOUNDS.items():
            self.connection.limit(bound, value)
        self.connection.set_authorizer(self._authorize)
        self.connection.set_progress_handler(self._late, _STEPS_BETWEEN_LOOKS)
        self._deadline: float | None = None
        self._denied = 0
        self._read: set[str] = set()

    def deadline(self, at: float | None) -> None:
        """Sets the deadline, by the monotonic clock. What runs beyond it raises `DeadlineExceeded`."""
        self._deadline = at

    def start(self, statement: Statement, *, can_cache: bool = True) -> "QueryCursor":
        """Runs it up to its first row. Raises `BadRequest` for what cannot be prepared or would write, `Fault` for
        what fails while it runs."""
        start = _Start(self, statement)
        return QueryCursor(start.run(can_cache), start.columns)

    def look(self, statement: Statement) -> "PreparedQuery":
        """The statement as it would run, without running it. Unknown named parameters are passed over. Raises
        `BadRequest`."""
        self._read.clear()
        start = _Start(self, statement, stop=True)
        start.run(can_cache=False)
        return PreparedQuery(start.expanded, start.columns, frozenset(self._read))

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All that is read within is of one moment."""
        self._unguarded("BEGIN")
        try:
            yield
        finally:
            self._unguarded("ROLLBACK")

    def take(self, answer: "QueryCursor", *, rows: int, size_bytes: int) -> list[tuple[Value, ...]]:
        """The next rows, until there are so many or so much; empty at the end."""
        taken: list[tuple[Value, ...]] = []
        size = 0
        with self._running():
            for row in answer.cursor:
                taken.append(row)
                size += sum(len(cell) if isinstance(cell, str | bytes) else 8 for cell in row)
                if len(taken) >= rows or size >= size_bytes:
                    break
        return taken

    def close(self) -> None:
        self.connection.close(True)

    @contextmanager
    def _running(self) -> Iterator[None]:
        try:
            yield
        except apsw.InterruptError as error:
            raise DeadlineExceeded(_TOO_MUCH) from error
        except apsw.BusyError as error:
            raise Unavailable("the catalog is busy, try again") from error
        except (apsw.Error, UnicodeDecodeError, MemoryError) as error:
            raise Fault(str(error)) from error

    def _authorize(self, action: int, one: str | None, two: str | None, *_: object) -> int:
        if action not in READS or (action == apsw.SQLITE_FUNCTION and (two or "").lower() in _FORBIDDEN_FUNCTIONS):
            self._denied = action
            return apsw.SQLITE_DENY
        if action == apsw.SQLITE_READ and one:
            self._read.add(one)
        return apsw.SQLITE_OK

    def _unguarded(self, sql: str) -> None:
        self.connection.set_authorizer(None)
        try:
            with self._running():
                self.connection.execute(sql)
        finally:
            self.connection.set_authorizer(self._authorize)

    def refusal(self, error: apsw.Error) -> BadRequest:
        denied, self._denied = self._denied, 0
        if isinstance(error, apsw.AuthError) and denied not in (0, apsw.SQLITE_FUNCTION):
            return BadRequest(NOT_READING if denied in _WRITES else f"not allowed here: {_name(denied)}")
        return BadRequest(str(error))

    def _late(self) -> bool:
        """Also when what is sorted and kept meanwhile, which is in memory and in no file, grows beyond the bound."""
        if apsw.memory_used() > HEAP_BYTES:
            return True
        return self._deadline is not None and self._clock.monotonic() > self._deadline


class _Start:
    """The way from a text to a statement that runs."""

    def __init__(self, guarded: ReadConnection, statement: Statement, *, stop: bool = False) -> None:
        self._guarded, self._statement, self._stop = guarded, statement, stop
        self._prepared = False
        self.expanded = ""
        self.columns: tuple[str, ...] = ()

    def run(self, can_cache: bool) -> apsw.Cursor:
        cursor: apsw.Cursor = self._guarded.connection.cursor()
        cursor.exec_trace = self._look
        query, bindings = self._statement.query, bindings_of(self._statement)
        if len(query.encode(errors="replace")) > SQL_BYTES:
            raise BadRequest(f"a statement may have {SQL_BYTES} bytes")
        try:
            cursor.execute(query, bindings, can_cache=can_cache)
        except apsw.ExecTraceAbort:
            return cursor
        except apsw.InterruptError as error:
            raise DeadlineExceeded(_TOO_MUCH) from error
        except (apsw.BindingsError, KeyError, UnicodeEncodeError) as error:
            raise BadRequest(f"the parameters do not fit the statement: {error}") from error
        except (apsw.Error, MemoryError) as error:
            if isinstance(error, apsw.AuthError) or (isinstance(error, apsw.Error) and not self._prepared):
                raise self._guarded.refusal(error) from error
            raise Fault(str(error)) from error
        return cursor

    def _look(self, cursor: apsw.Cursor, text: str, _: object) -> bool:
        """Between preparing and running."""
        if not cursor.has_vdbe:
            raise BadRequest("the statement is empty")
        if self._statement.query[len(text) :].strip():
            raise BadRequest("one statement at a time")
        if not cursor.is_readonly:
            raise BadRequest(NOT_READING)
        unknown = set(self._statement.named_params) - {name for name in cursor.bindings_names if name}
        if unknown and not self._stop:
            raise BadRequest(f"the statement has no parameter {sorted(unknown)[0]!r}")
        self._prepared = True
        self.columns = tuple(column[0] for column in cursor.get_description())
        self.expanded = cursor.expanded_sql if self._stop else ""
        return not self._stop


def bindings_of(statement: Statement) -> Sequence[Value] | Mapping[str, Value] | None:
    return statement.named_params or statement.params or None


def _name(action: int) -> str:
    return str(apsw.mapping_authorizer_function[action]).removeprefix("SQLITE_").replace("_", " ").lower()


class ReadPool:
    """Guarded connections to one file, opened when wanted; a few are kept."""

    def __init__(self, open_one: Callable[[], ReadConnection]) -> None:
        self._open = open_one
        self._spare: SimpleQueue[ReadConnection] = SimpleQueue()
        self._out: set[ReadConnection] = set()
        self._closed = False

    @contextmanager
    def one(self) -> Iterator[ReadConnection]:
        guarded = self.take()
        try:
            yield guarded
        finally:
            self.give(guarded)

    def take(self) -> ReadConnection:
        try:
            guarded = self._spare.get_nowait()
        except Empty:
            guarded = self._open()
        self._out.add(guarded)
        return guarded

    def give(self, guarded: ReadConnection) -> None:
        guarded.deadline(None)
        self._out.discard(guarded)
        if self._closed or self._spare.qsize() >= SPARE:
            guarded.close()
        else:
            self._spare.put(guarded)

    def interrupt(self) -> None:
        """End all that runs now, from any thread: it raises `DeadlineExceeded` there."""
        for guarded in list(self._out):
            guarded.connection.interrupt()

    def close(self) -> None:
        self._closed = True
        while not self._spare.empty():
            self._spare.get().close()
