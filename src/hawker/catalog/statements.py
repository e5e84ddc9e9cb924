"""Runs a caller's statements on the writing connection: rows of replicated tables only, one statement a text, until a
deadline. What the catalog itself runs on that connection is not looked at.

The authorizer is asked when a statement is prepared. Prepared ones are cached by their flags too, and the caller's
have a flag of their own, so that none of the catalog's is ever run for a caller.
"""

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager

import apsw

from hawker.catalog.contract import Effect, Statement
from hawker.clock import Clock
from hawker.errors import BadRequest, DeadlineExceeded, Unavailable

_STEPS_BETWEEN_LOOKS = 1_000
_READS = frozenset({apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE})
_WRITES = frozenset({apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE})
_OURS = frozenset({"load_extension", "next_version"})
_PASSING = (apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.IOError, apsw.NoMemError, apsw.ReadOnlyError)


class StatementFailed(BadRequest):
    """SQLite's own text, or why a statement may not run here."""

    prefix = ""


class Statements:
    def __init__(self, connection: apsw.Connection, clock: Clock) -> None:
        self._connection, self._clock = connection, clock
        self._writable: Container[str] = ()
        self._guarding = False
        self._denied = ""
        connection.authorizer = self._authorize

    def run(
        self, statements: Sequence[Statement], writable: Container[str], timeout_s: float | None
    ) -> tuple[Effect, ...]:
        """Inside the caller's transaction, which is of no use when this raises."""
        self._writable = writable
        with self._guarded(timeout_s):
            return tuple(map(self._one, statements))

    def _one(self, statement: Statement) -> Effect:
        begun, before = self._clock.monotonic(), self._connection.total_changes()
        cursor = self._connection.cursor()
        cursor.exec_trace = _Look(statement)
        bindings = statement.params or statement.named_params or None
        for _ in cursor.execute(statement.query, bindings, prepare_flags=apsw.SQLITE_PREPARE_PERSISTENT):
            pass
        rows = self._connection.total_changes() - before
        return Effect(rows_affected=rows, seconds=self._clock.monotonic() - begun)

    @contextmanager
    def _guarded(self, timeout_s: float | None) -> Iterator[None]:
        self._guarding, self._denied = True, ""
        if timeout_s is not None:
            deadline = self._clock.monotonic() + timeout_s
            self._connection.set_progress_handler(lambda: self._clock.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)
        try:
            yield
        except apsw.InterruptError as error:
            raise DeadlineExceeded("the transaction took longer than its timeout, and was rolled back") from error
        except _PASSING as error:
            raise Unavailable(f"the catalog cannot be written now: {error}") from error
        except (apsw.Error, UnicodeError, OverflowError, TypeError, KeyError) as error:
            raise StatementFailed(self._denied or str(error)) from error
        finally:
            self._guarding = False
            if timeout_s is not None:
                self._connection.set_progress_handler(None)

    def _authorize(self, action: int, one: str | None, two: str | None, *_: object) -> int:
        if not self._guarding or (action in _READS and two not in _OURS):
            return int(apsw.SQLITE_OK)
        if action == apsw.SQLITE_PRAGMA and one == "table_xinfo":
            return int(apsw.SQLITE_OK)  # what the session asks, at the first change of a table
        if action in _WRITES and one in self._writable:
            return int(apsw.SQLITE_OK)
        if action in _WRITES:
            self._denied = f"table {one} is not one that replicates, and cannot be written here"
        else:
            name = str(apsw.mapping_authorizer_function[action]).removeprefix("SQLITE_").replace("_", " ").lower()
            self._denied = f"{name} is not allowed in a transaction of the catalog"
        return int(apsw.SQLITE_DENY)


class _Look:
    """Between preparing and running: one statement, and no parameter that it does not have."""

    def __init__(self, statement: Statement) -> None:
        self._statement = statement

    def __call__(self, cursor: apsw.Cursor, text: str, _: object) -> bool:
        if not cursor.has_vdbe or self._statement.query[len(text) :].strip():
            raise StatementFailed("one statement at a time" if cursor.has_vdbe else "the statement is empty")
        named = self._statement.named_params
        if named and (unknown := set(named).difference(cursor.bindings_names)):
            raise StatementFailed(f"the statement has no parameter {min(unknown)!r}")
        return True
