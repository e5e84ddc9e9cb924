"""The catalog's one file and its one writing connection. WAL, so that any sqlite3 from 3.40 on may read while we write;
the users' tables have their own columns only, and all that the catalog knows beside them stands in side tables.

Migration takes it from the tables it has to those that the files declare: adds, never drops or changes. Adding a column
changes no row, so it replicates nothing.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from hawker.catalog.change import Scope
from hawker.catalog.schema import Replicated, Schema, SchemaRefused, described, normal, parse, quoted
from hawker.errors import CannotStart

APPLICATION_ID = 0x68776B63  # "hwkc", in the file's header
LAYOUT_VERSION = 1
CHECKPOINT_PAGES = 2_000  # how far the log of writes grows before it is copied into the file
CROWDED_PAGES = 32_000  # each time it has grown so far, readers that are slow are waited for, a little
STATEMENTS_CACHED = 400
CACHE_KIB = 65_536  # what a batch of 10,000 rows changes; half of it makes such a batch three times slower
_BUSY_MS, _PATIENCE_MS = 5_000, 50
_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI

_LAYOUT = f"""
BEGIN IMMEDIATE;
CREATE TABLE __c_table (name TEXT NOT NULL PRIMARY KEY, scope TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE __c_origin (
    number INTEGER PRIMARY KEY, origin TEXT NOT NULL, scope TEXT NOT NULL, epoch INTEGER NOT NULL,
    applied INTEGER NOT NULL, gc_floor INTEGER NOT NULL, forgotten INTEGER NOT NULL, run INTEGER NOT NULL,
    came INTEGER NOT NULL, UNIQUE (origin, scope));
CREATE TABLE __c_log (
    id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, ver INTEGER NOT NULL, at REAL NOT NULL, payload BLOB NOT NULL);
CREATE INDEX __c_log_by_version ON __c_log (stream, ver);
CREATE TABLE __c_unknown (
    stream INTEGER NOT NULL, tbl TEXT NOT NULL, key BLOB NOT NULL, ver INTEGER NOT NULL, run INTEGER NOT NULL,
    del INTEGER NOT NULL, payload BLOB NOT NULL, PRIMARY KEY (stream, tbl, key)) WITHOUT ROWID;
CREATE TABLE __c_quarantine (
    stream INTEGER NOT NULL, tbl TEXT NOT NULL, key BLOB NOT NULL, ver INTEGER NOT NULL, run INTEGER NOT NULL,
    del INTEGER NOT NULL, payload BLOB NOT NULL, reason TEXT NOT NULL DEFAULT '', at REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (stream, tbl, key)) WITHOUT ROWID;
CREATE TABLE __c_lease (id INTEGER PRIMARY KEY, run TEXT NOT NULL);
CREATE TABLE __corro_members (
    host TEXT NOT NULL PRIMARY KEY, state TEXT NOT NULL, since REAL NOT NULL, rtt REAL, epoch INTEGER NOT NULL)
    WITHOUT ROWID;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {LAYOUT_VERSION};
COMMIT;
"""

_log = logging.getLogger("hawker.catalog")


class Database:
    """Opens the file, makes it when it is not there. Raises `CannotStart` when it is none of ours, damaged or newer."""

    def __init__(self, path: Path, *, crowded_pages: int = CROWDED_PAGES) -> None:
        self.path = path
        self.connection = _open(path)
        self._log_pages = 0
        self._crowded_pages = self._crowded_at = crowded_pages
        self._durable = True
        self.connection.set_wal_hook(self._note_log_size)

    @contextmanager
    def transaction(self, *, durable: bool) -> Iterator[apsw.Connection]:
        """Committed at its end, rolled back when something is raised. One that is not durable may be lost with the
        power, after which the file is as it was at some earlier moment."""
        if durable != self._durable:
            self.connection.execute("PRAGMA synchronous = FULL" if durable else "PRAGMA synchronous = NORMAL")
            self._durable = durable
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield self.connection
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise
        self.checkpoint()

    def checkpoint(self) -> None:
        """Brings the log into the database, between two transactions. Readers are waited for when the log is long, but
        never for long themselves."""
        if self._log_pages < CHECKPOINT_PAGES:
            return
        crowded = self._log_pages >= self._crowded_at
        mode = apsw.SQLITE_CHECKPOINT_RESTART if crowded else apsw.SQLITE_CHECKPOINT_PASSIVE
        try:
            self._crowded_at = self._log_pages + self._crowded_pages if crowded else self._crowded_at
            self.connection.set_busy_timeout(_PATIENCE_MS if crowded else _BUSY_MS)
            self.connection.wal_checkpoint(mode=mode)
            self._crowded_at = self._crowded_pages if crowded else self._crowded_at
        except apsw.BusyError:
            _log.debug("readers keep the catalog's log", extra={"pages": self._log_pages})
        except apsw.Error as error:
            _log.warning("checkpoint failed", extra={"path": str(self.path), "reason": str(error)})
        finally:
            self.connection.set_busy_timeout(_BUSY_MS)

    def relax(self) -> None:
        """Give back what memory the last large batch took."""
        self.connection.execute("PRAGMA shrink_memory").fetchall()

    def close(self) -> None:
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.close()

    def _note_log_size(self, _connection: apsw.Connection, _schema: str, pages: int) -> int:
        self._log_pages = pages
        return int(apsw.SQLITE_OK)


def _open(path: Path) -> apsw.Connection:
    try:
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        connection = apsw.Connection(f"file:{quote(str(path))}", flags=_FLAGS, statementcachesize=STATEMENTS_CACHED)
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise _damaged(path, str(error)) from error
    except (apsw.Error, OSError) as error:
        raise CannotStart(f"{path} cannot be opened: {error}") from error


def _prepare(connection: apsw.Connection, path: Path) -> None:
    connection.set_busy_timeout(_BUSY_MS)
    for pragma in ("journal_mode = WAL", "wal_autocheckpoint = 0", "synchronous = FULL", f"cache_size = -{CACHE_KIB}"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    if connection.execute("SELECT count(*) FROM sqlite_schema").get == 0:
        connection.execute(_LAYOUT).fetchall()
    check(connection, path)


def check(connection: apsw.Connection, path: Path) -> None:
    """Checks that the file is a catalog which this version can use."""
    if connection.pragma("application_id") != APPLICATION_ID:
        raise CannotStart(f"{path} is not a hawker catalog: choose another data directory")
    version = connection.pragma("user_version")
    if version > LAYOUT_VERSION:
        text = f"{path} was written by a newer hawker (catalog version {version}, known here: {LAYOUT_VERSION})"
        raise CannotStart(f"{text}: upgrade this one, or move the file away; the other nodes send it again")


def _damaged(path: Path, reason: str) -> CannotStart:
    text = f"{path} is damaged ({reason}): move it away, with its -wal and -shm"
    return CannotStart(f"{text}; the node publishes its rows again, and the other nodes send theirs")


_LIVE = "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?"
_INDEXES = "SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"


def evolve(connection: apsw.Connection, schema: Schema, *, kept: frozenset[str] = frozenset()) -> None:
    """Inside the caller's transaction. Raises `SchemaRefused`; the caller rolls back. Tables in `kept` may have more
    columns than declared: a newer version of this program added them."""
    try:
        for table in schema.tables.values():
            live = connection.execute(_LIVE, (table.name,)).get
            if live is None:
                _create(connection, table)
            else:
                _extend(connection, table, live, lenient=table.name in kept)
        _reindex(connection, schema)
    except apsw.Error as error:
        raise SchemaRefused(str(error)) from error


def tables_of(connection: apsw.Connection) -> Mapping[str, Replicated]:
    """The tables that the live database replicates, declared or not."""
    rows: list[Any] = connection.execute(
        "SELECT name, scope, sql FROM __c_table JOIN sqlite_schema USING (name)"
    ).fetchall()
    return {name: described(sql, Scope(scope)) for name, scope, sql in rows}


def _create(connection: apsw.Connection, table: Replicated) -> None:
    connection.execute(table.sql)
    connection.execute("INSERT INTO __c_table VALUES (?, ?)", (table.name, table.scope.value))
    for statement in side_tables(connection, table):
        connection.execute(statement)


def side_tables(connection: apsw.Connection, table: Replicated) -> list[str]:
    """The statements for the side table, which has what is known of each row, live or deleted: its owner's last
    version, when it was deleted here (Unix seconds, 0 for a live one), and in which run of its stream it was last
    confirmed (see origins.py)."""
    rows: list[Any] = connection.execute("SELECT name, type FROM pragma_table_xinfo(?)", (table.name,)).fetchall()
    types = dict(rows)
    side, keys = quoted(f"{table.name}__m"), ", ".join(map(quoted, table.key))
    typed = ", ".join(f"{quoted(name)} {types[name]} NOT NULL" for name in table.key)
    own = "__ver INTEGER NOT NULL, __del INTEGER NOT NULL, __run INTEGER NOT NULL"
    by_version, by_death = quoted(f"{table.name}__v"), quoted(f"{table.name}__d")
    return [
        f"CREATE TABLE {side} ({typed}, {own}, PRIMARY KEY ({keys})) WITHOUT ROWID",
        f"CREATE INDEX {by_version} ON {side} ({quoted(table.key[0])}, __ver, __del)",
        f"CREATE INDEX {by_death} ON {side} (__del) WHERE __del > 0",
    ]


def _extend(connection: apsw.Connection, table: Replicated, live: str, *, lenient: bool) -> None:
    before, after = parse(live), parse(table.sql)
    if not lenient and (gone := set(before.columns) - set(after.columns)):
        raise SchemaRefused(f"{table.name}: won't drop column {min(gone)} without the destructive flag")
    if described(live, table.scope).key != table.key:
        raise SchemaRefused(f"{table.name}: won't change the primary key without the destructive flag")
    for name, text in before.columns.items():
        if name in after.columns and normal(text) != normal(after.columns[name]):
            raise SchemaRefused(f"{table.name}: won't change column {name} without the destructive flag")
    if (before.constraints, before.options) != (after.constraints, after.options):
        raise SchemaRefused(f"{table.name}: won't change the table's constraints without the destructive flag")
    scope = connection.execute("SELECT scope FROM __c_table WHERE name = ?", (table.name,)).get
    if scope != table.scope.value:
        raise SchemaRefused(f"{table.name}: won't change its scope from {scope} to {table.scope.value}")
    for name, text in after.columns.items():
        if name not in before.columns:
            connection.execute(f"ALTER TABLE {quoted(table.name)} ADD COLUMN {text}")


def _reindex(connection: apsw.Connection, schema: Schema) -> None:
    live = {name: (table, sql) for name, table, sql in connection.execute(_INDEXES)}
    for name, (table, sql) in live.items():
        wanted = schema.indexes.get(name)
        declared = table in schema.tables and (wanted is None or normal(wanted[1]) != normal(sql))
        if declared or (name in schema.dropped and not table.endswith("__m")):
            connection.execute(f"DROP INDEX {quoted(name)}")
    for name, (table, sql) in schema.indexes.items():
        if name in live and live[name][0] != table:
            raise SchemaRefused(f"index {name} is already that of table {live[name][0]}")
        if name not in live or normal(live[name][1]) != normal(sql):
            connection.execute(sql)
