"""Local transactions: a caller's statements are run on the writing connection, and what they changed is captured as
whole rows. SQLite's session extension notes the keys, net of what comes to nothing (an update to the same values, an
insert and a delete).
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import apsw
import msgspec

from hawker.catalog.change import Op, Scope, Value
from hawker.catalog.contract import Effect, Statement
from hawker.catalog.read_connection import READS
from hawker.catalog.rows import TableRows
from hawker.clock import Clock
from hawker.errors import BadRequest, DeadlineExceeded, Unavailable
from hawker.ids import NodeId

_STEPS_BETWEEN_LOOKS = 1_000
_WRITES = frozenset({apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE})
_OURS = frozenset({"load_extension", "next_version"})
_PASSING = (apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.IOError, apsw.NoMemError, apsw.ReadOnlyError)


class StatementFailed(BadRequest):
    """SQLite's own text, or why a statement may not run here."""

    prefix = ""


# Runs a caller's statements on the writing connection: rows of replicated tables only, one statement a text, until
# a deadline. What the catalog itself runs on that connection is not looked at. The authorizer is asked when a
# statement is prepared. Prepared ones are cached by their flags too, and the caller's have a flag of their own, so
# that none of the catalog's is ever run for a caller.


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
        if not self._guarding or (action in READS and two not in _OURS):
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


ROW_BYTES = 1024 * 1024
OPS_LIMIT = 200_000
TX_BYTES = 32 * 1024 * 1024  # one answer over a stream has to hold it
_encode = msgspec.msgpack.Encoder().encode


class Capture:
    """The capture of the row changes of one transaction. `ops` is there once the block has ended."""

    def __init__(self, connection: apsw.Connection, node: NodeId, rows: Mapping[str, TableRows]) -> None:
        self._connection, self._node, self._rows = connection, node, rows
        self.ops: dict[Scope, list[Op]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        session = apsw.Session(self._connection, "main")
        try:
            session.table_filter(self._rows.__contains__)
            session.attach()
            yield
            if not session.is_empty:
                self._take(session.changeset())
        finally:
            session.close()

    def _take(self, changeset: bytes) -> None:
        size = 0
        for count, change in enumerate(apsw.Changeset.iter(changeset), 1):
            if count > OPS_LIMIT:
                raise StatementFailed(f"the transaction changes more than {OPS_LIMIT} rows: make it several")
            rows = self._rows[change.name]
            op = self._op(rows, change)
            size += op_size(op)
            if size > TX_BYTES:
                raise StatementFailed(f"the rows of a transaction may have {TX_BYTES} bytes: make it several")
            self.ops.setdefault(rows.table.scope, []).append(op)

    def _op(self, rows: TableRows, change: apsw.TableChange) -> Op:
        table = rows.table
        values: Any = change.new if change.old is None else change.old
        key = tuple(values[place] for place in table.places)
        if key[0] != self._node:
            raise StatementFailed(
                f"{table.name}: a row of {key[0]!r}, which only its owner may change; this is {self._node}"
            )
        if change.op == "DELETE":
            return Op(table.name, key)
        whole = values if change.op == "INSERT" else rows.read(key)
        row = tuple([whole[place] for place in rows.others])
        if is_too_large(key, row):
            raise StatementFailed(f"{table.name}: a row may have {ROW_BYTES} bytes")
        return Op(table.name, key, table.columns, row)


def size_of(values: tuple[Value, ...]) -> int:
    """The size of values in bytes, about."""
    return 8 * len(values) + sum([_length(value) for value in values if isinstance(value, str | bytes)])


def is_too_large(key: tuple[Value, ...], row: tuple[Value, ...]) -> bool:
    """A row of which size is more than `ROW_BYTES`. Encoded, a value has an eighth of its size at least."""
    return len(_encode((key, row))) * 8 > ROW_BYTES and size_of(key) + size_of(row) > ROW_BYTES


def op_size(op: Op) -> int:
    """The bytes of a message that an op takes."""
    return len(_encode(op))


def _length(value: str | bytes) -> int:
    return len(value) if isinstance(value, bytes) or value.isascii() else len(value.encode(errors="replace"))
