"""The database of a played Corrosion agent: an actor of its own, a version for each transaction, and what it knows of
the versions of other actors, in tables that bear Corrosion's names.

Rows merge whole, by a Lamport clock. Corrosion merges columns, which comes to the same where each row has one writer.
"""

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import apsw
import apsw.ext
import msgspec

from hawker.catalog.change import Cells
from tests.catalog.played.statement import PlayedStatement

_OWN = """
CREATE TABLE IF NOT EXISTS crsql_site_id (site_id BLOB NOT NULL PRIMARY KEY);
CREATE TABLE IF NOT EXISTS crsql_db_versions (site_id BLOB NOT NULL PRIMARY KEY, db_version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS __corro_bookkeeping_gaps (
    actor_id BLOB NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL, PRIMARY KEY (actor_id, start));
CREATE TABLE IF NOT EXISTS __corro_seq_bookkeeping (site_id BLOB NOT NULL, db_version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS __corro_members (actor_id BLOB PRIMARY KEY NOT NULL, address TEXT NOT NULL, foca_state JSON);
CREATE TABLE IF NOT EXISTS __played_clock (row BLOB NOT NULL PRIMARY KEY, clock INTEGER NOT NULL, actor BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS __played_log (
    actor BLOB NOT NULL, version INTEGER NOT NULL, change BLOB NOT NULL, PRIMARY KEY (actor, version));
"""
_STEPS = 1000


class RefusedSql(Exception):
    """What SQLite says of a statement. `prepared`: it could be read, and failed when it ran."""

    def __init__(self, text: str, *, prepared: bool) -> None:
        super().__init__(text)
        self.prepared = prepared


class PlayedOp(msgspec.Struct, frozen=True, array_like=True):
    """A row as it is from now on; None once it is deleted."""

    table: str
    key: Cells
    row: Cells | None


class PlayedChange(msgspec.Struct, frozen=True, array_like=True):
    """One transaction of an actor."""

    actor: bytes
    version: int
    clock: int
    ops: tuple[PlayedOp, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedWrite:
    """`change` is None where nothing changed."""

    rows_affected: tuple[int, ...]
    change: PlayedChange | None


class PlayedDatabase:
    def __init__(self, file: Path, schemas: Sequence[str]) -> None:
        self._connection = apsw.Connection(str(file))
        self._connection.execute(_OWN)
        self._deadline: float | None = None
        self._connection.set_progress_handler(self._late, _STEPS)
        for schema in schemas:
            self.declare(schema)
        found = self._connection.execute("SELECT site_id FROM crsql_site_id").fetchall()
        self.actor = bytes(cast(bytes, found[0][0])) if found else uuid.uuid4().bytes
        self._connection.execute("INSERT OR IGNORE INTO crsql_site_id VALUES (?)", (self.actor,))
        (self._clock,) = self._one("SELECT coalesce(max(clock), 0) FROM __played_clock")
        self.touched: dict[tuple[str, Cells], bool] = {}  # since it was last asked; False for a deleted row
        self.fresh: set[tuple[str, Cells]] = set()  # of these, the rows that were never there before

    def declare(self, schema: str) -> None:
        """Tables that are there already stay as they are."""
        self._connection.execute(
            schema.replace("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ").replace(
                "CREATE INDEX ", "CREATE INDEX IF NOT EXISTS "
            )
        )

    @property
    def tables(self) -> Mapping[str, tuple[str, ...]]:
        """Those that replicate, and the key of each."""
        found: dict[str, tuple[str, ...]] = {}
        names = self._connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        for name in [str(name) for (name,) in names]:
            if not name.startswith(("__", "crsql_", "sqlite_")):
                query = "SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk"
                found[name] = tuple(str(column) for (column,) in self._connection.execute(query, (name,)))
        return found

    # Statements.

    @contextmanager
    def within(self, timeout_s: float | None) -> Iterator[None]:
        self._deadline = time.monotonic() + timeout_s if timeout_s else None
        try:
            yield
        finally:
            self._deadline = None

    def prepare(self, query: str) -> apsw.ext.QueryDetails:
        """Raises `RefusedSql`."""
        try:
            found = apsw.ext.query_info(self._connection, query)
        except apsw.Error as error:
            raise RefusedSql(str(error), prepared=False) from error
        if (found.query_remaining or "").strip():
            raise RefusedSql("Multiple statements provided", prepared=False)
        return found

    def run(self, statement: PlayedStatement) -> tuple[tuple[str, ...], list[Cells]]:
        """The names of the columns, and the rows. Raises `RefusedSql`."""
        found = self.prepare(statement.query)
        bindings = _bindings(found, statement, strict=True)
        try:
            rows = self._connection.execute(statement.query, bindings).fetchall()
        except apsw.Error as error:
            raise RefusedSql(str(error), prepared=True) from error
        return tuple(str(name) for name, _ in found.description), rows

    def columns(self, table: str) -> set[str]:
        return {str(name) for (name,) in self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}

    def named(self, query: str, table: str) -> set[str]:
        """The columns of the table that a query names."""
        actions = apsw.ext.query_info(self._connection, query, actions=True).actions or []
        return {str(each.column_name) for each in actions if each.table_name == table and each.column_name}

    def written_out(self, statement: PlayedStatement) -> str:
        """The statement with its parameters in its text."""
        found = self.prepare(statement.query)
        if not found.is_readonly:
            raise RefusedSql("Unsupported statement", prepared=False)
        bindings = _bindings(found, statement, strict=False)
        return str(apsw.ext.query_info(self._connection, statement.query, bindings, expanded_sql=True).expanded_sql)

    def rows(self, query: str) -> list[Cells]:
        """Raises `RefusedSql`."""
        try:
            return self._connection.execute(query).fetchall()
        except apsw.Error as error:
            raise RefusedSql(str(error), prepared=False) from error

    # Transactions.

    def transact(self, statements: Sequence[PlayedStatement], timeout_s: float | None) -> PlayedWrite:
        """All or nothing. Raises `RefusedSql`."""
        session = apsw.Session(self._connection, "main")
        for table in self.tables:
            session.attach(table)
        with self.within(timeout_s), self._transaction():
            affected = tuple(self._execute(statement) for statement in statements)
            ops = tuple(self._ops(session))
            session.close()
            if not ops:
                return PlayedWrite(rows_affected=affected, change=None)
            self._clock += 1
            change = PlayedChange(self.actor, self.last(self.actor) + 1, self._clock, ops)
            self._keep(change)
            for op in ops:
                self._stamp(op, change)
        return PlayedWrite(rows_affected=affected, change=change)

    def apply(self, change: PlayedChange) -> None:
        """What another actor did, in any order and as often as it comes."""
        if self.has(change.actor, change.version):
            return
        with self._transaction():
            for lacking in range(self.last(change.actor) + 1, change.version):
                self._execute_own(
                    "INSERT INTO __corro_bookkeeping_gaps VALUES (?, ?, ?)", change.actor, lacking, lacking
                )
            query = "DELETE FROM __corro_bookkeeping_gaps WHERE actor_id = ? AND start = ?"
            self._execute_own(query, change.actor, change.version)
            self._clock = max(self._clock, change.clock)
            self._keep(change)
            for op in change.ops:
                if op.table in self.tables and self._stamp(op, change):
                    self._put(op)

    def last(self, actor: bytes) -> int:
        found = self._connection.execute("SELECT db_version FROM crsql_db_versions WHERE site_id = ?", (actor,))
        return int(next(iter(found), (0,))[0])

    def has(self, actor: bytes, version: int) -> bool:
        gap = "SELECT 1 FROM __corro_bookkeeping_gaps WHERE actor_id = ? AND ? BETWEEN start AND end"
        return version <= self.last(actor) and not self._connection.execute(gap, (actor, version)).fetchall()

    def changes(self) -> Iterator[PlayedChange]:
        """All that it ever heard of."""
        for (blob,) in self._connection.execute("SELECT change FROM __played_log ORDER BY actor, version").fetchall():
            yield msgspec.msgpack.decode(cast(bytes, blob), type=PlayedChange)

    def lack(self, *, gap: int, part: int) -> None:
        """Of its own: one version is known to be missing, another one is there in parts only."""
        self._execute_own("INSERT INTO __corro_bookkeeping_gaps VALUES (?, ?, ?)", self.actor, gap, gap)
        self._execute_own("INSERT INTO __corro_seq_bookkeeping VALUES (?, ?)", self.actor, part)

    def set_members(self, living: Iterable[bytes]) -> None:
        self._connection.execute("DELETE FROM __corro_members")
        for actor in living:
            self._execute_own("INSERT INTO __corro_members VALUES (?, '', '{\"state\":\"Alive\"}')", actor)

    @property
    def gaps(self) -> int:
        return int(self._one("SELECT count(*) FROM __corro_bookkeeping_gaps")[0])

    def close(self) -> None:
        self._connection.close()

    def _execute(self, statement: PlayedStatement) -> int:
        before = self._connection.total_changes()
        _, rows = self.run(statement)
        if rows:
            raise RefusedSql("Execute returned results - did you mean to call query?", prepared=True)
        return self._connection.total_changes() - before

    def _ops(self, session: apsw.Session) -> Iterator[PlayedOp]:
        for each in apsw.Changeset.iter(session.changeset()):
            values = each.new if each.op == "INSERT" else each.old
            names = [
                str(name) for (name,) in self._connection.execute("SELECT name FROM pragma_table_info(?)", (each.name,))
            ]
            by_name: dict[str, Any] = dict(zip(names, values or (), strict=True))
            key = tuple(by_name[name] for name in self.tables[each.name])
            where = " AND ".join(f"{name} IS ?" for name in self.tables[each.name])
            rows = self._connection.execute(f"SELECT * FROM {each.name} WHERE {where}", key).fetchall()
            yield PlayedOp(each.name, key, rows[0] if rows else None)

    def _stamp(self, op: PlayedOp, change: PlayedChange) -> bool:
        """Whether this is the last word on the row."""
        name = msgspec.msgpack.encode((op.table, op.key))
        found = self._connection.execute("SELECT clock, actor FROM __played_clock WHERE row = ?", (name,)).fetchall()
        if found and tuple(found[0]) >= (change.clock, change.actor):
            return False
        self._execute_own("INSERT OR REPLACE INTO __played_clock VALUES (?, ?, ?)", name, change.clock, change.actor)
        self.touched[op.table, op.key] = op.row is not None
        if not found:
            self.fresh.add((op.table, op.key))
        return True

    def _put(self, op: PlayedOp) -> None:
        if op.row is not None:
            self._execute_own(f"INSERT OR REPLACE INTO {op.table} VALUES ({', '.join('?' * len(op.row))})", *op.row)
            return
        where = " AND ".join(f"{name} IS ?" for name in self.tables[op.table])
        self._execute_own(f"DELETE FROM {op.table} WHERE {where}", *op.key)

    def _keep(self, change: PlayedChange) -> None:
        last = max(change.version, self.last(change.actor))
        self._execute_own("INSERT OR REPLACE INTO crsql_db_versions VALUES (?, ?)", change.actor, last)
        blob = msgspec.msgpack.encode(change)
        self._execute_own("INSERT INTO __played_log VALUES (?, ?, ?)", change.actor, change.version, blob)

    def _execute_own(self, query: str, *values: Any) -> None:
        self._connection.execute(query, values)

    def _one(self, query: str) -> Any:
        return self._connection.execute(query).fetchone()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _late(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline


def _bindings(found: apsw.ext.QueryDetails, statement: PlayedStatement, *, strict: bool) -> Any:
    if statement.named is None:
        if strict and len(statement.params) != found.bindings_count:
            text = f"Got {len(statement.params)}, needed {found.bindings_count}"
            raise RefusedSql(f"Wrong number of parameters passed to query. {text}", prepared=True)
        return (*statement.params, *[None] * (found.bindings_count - len(statement.params)))
    given = {name[1:]: value for name, value in statement.named.items()}
    for name in given:
        if strict and name not in found.bindings_names:
            raise RefusedSql(f"Invalid parameter name: :{name}", prepared=True)
    return {name: given.get(str(name)) for name in found.bindings_names}
