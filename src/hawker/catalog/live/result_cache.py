"""The cached result of one live query on disk: its rows with their identities, and its last changes. One SQLite file
each.

It survives a clean stop and nothing else: a file that was not closed well is thrown away, so it needs no syncing. Row
ids are never used twice; changes are counted from 1 without gaps.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw
import msgspec

from hawker.catalog.change import Value
from hawker.catalog.contract import RowChange
from hawker.errors import BadRequest

HISTORY = 500
MAX_ROWS = 1_000_000
MAX_BYTES = 512 * 1024 * 1024
_SLACK = 100  # changes beyond the history before it is cut again
_TABLES = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA cache_size = -1024; PRAGMA temp_store = FILE;
PRAGMA wal_autocheckpoint = 1000; PRAGMA journal_size_limit = 4194304;
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS changes (number INTEGER PRIMARY KEY, kind TEXT, row_id INTEGER, cells BLOB);
CREATE TABLE IF NOT EXISTS kept (id INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB UNIQUE, cells BLOB);
CREATE TEMP TABLE fresh (key BLOB PRIMARY KEY, cells BLOB, place INTEGER) WITHOUT ROWID;
CREATE TEMP TABLE touched (root BLOB PRIMARY KEY) WITHOUT ROWID;
"""
_GONE = "SELECT id, cells FROM kept WHERE {which} AND key NOT IN (SELECT key FROM fresh) ORDER BY id"
_OTHER = """
SELECT kept.id, fresh.key, fresh.cells FROM fresh LEFT JOIN kept ON kept.key = fresh.key
WHERE kept.id IS NULL OR kept.cells <> fresh.cells ORDER BY fresh.place
"""
_BOUND = (
    f"the answer is too big for a subscription, which keeps {MAX_ROWS} rows and {MAX_BYTES >> 20} MiB: ask for less"
)

_decode = msgspec.msgpack.Decoder(tuple[Any, ...]).decode
Key = tuple[Value, ...]


def pack(values: Sequence[object]) -> bytes:
    return msgspec.msgpack.encode(values)


class CachedQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The query that the file is of: the statement with its parameters written out, the names of its columns, and of
    how many tables its rows have keys."""

    sql: str
    """The SQL that another statement must be, letter by letter, to use the file."""
    columns: tuple[str, ...]
    """The names of the columns, in the order of the answer."""
    sources: int
    """The number of tables of which the rows have keys; 0 where the query is asked as a whole."""


class FreshRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the answer now. `keys` has the key of each source, None for one that a left join found nothing in."""

    keys: tuple[Key | None, ...]
    cells: tuple[Value, ...]


class ResultCache:
    """Used by one thread at a time. `sources` is of how many tables a row has a key: 0 when rows are only what they
    hold. All methods block."""

    def __init__(self, file: Path, sources: int, *, history: int = HISTORY, most_rows: int = MAX_ROWS) -> None:
        self.file = file
        self._sources, self._history, self._most_rows = sources, history, most_rows
        self._db = apsw.Connection(str(file))
        self._db.execute(_TABLES).fetchall()
        if sources:
            self._index()
        self._last = self._one("SELECT max(number) FROM changes") or 0
        self._floor = self._one("SELECT min(number) FROM changes") or 1

    @property
    def last(self) -> int:
        """The number of the last change; 0 when there was none."""
        return self._last

    @property
    def floor(self) -> int:
        """The oldest change that is still known."""
        return self._floor

    def note(self, about: CachedQuery, *, completed: bool) -> None:
        """Writes which query the file is of; `completed` says that nothing is missing from now on."""
        put = "INSERT INTO meta VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = ?2"
        with self._db:
            self._db.execute(put, ("about", msgspec.json.encode(about)))
            self._db.execute(put, ("state", "completed" if completed else "running"))

    def roots_holding(self, source: int, keys: Iterable[Key]) -> set[Key]:
        """Roots of kept rows that stand for one of these rows of another source."""
        found: set[Key] = set()
        for key in keys:
            rows = self._db.execute(f"SELECT DISTINCT s0 FROM kept WHERE s{source} = ?", (pack(key),))
            found.update(_decode(row[0]) for row in rows)
        return found

    def replace(self, fresh: Iterable[FreshRow], roots: Iterable[Key] | None) -> list[RowChange]:
        """The rows of these roots, or all, are `fresh` now: what changed thereby. Raises `BadRequest` when the
        answer grows too big."""
        with self._db:
            self._load(fresh, roots)
            which = "s0 IN (SELECT root FROM touched)" if roots is not None else "true"
            gone = self._db.execute(_GONE.format(which=which)).fetchall()
            other = self._db.execute(_OTHER).fetchall()
            changes = list(self._changes(gone, other))
            first = self._last + 1
            numbered = [msgspec.structs.replace(change, number=first + i) for i, change in enumerate(changes)]
            self._write(numbered)
            if other and (self._one("SELECT count(*) FROM kept") or 0) > self._most_rows:
                raise BadRequest(_BOUND)
            self._db.execute("DELETE FROM fresh; DELETE FROM touched")
        self._last += len(numbered)
        self._floor = self._one("SELECT min(number) FROM changes") or 1
        return numbered

    def fill(self, fresh: Iterable[FreshRow]) -> None:
        """The first answer: no changes come of it."""
        with self._db:
            self._load(fresh, None)
            for key, cells in self._db.execute("SELECT key, cells FROM fresh ORDER BY place"):
                self._insert(key, cells)
            self._db.execute("DELETE FROM fresh")

    def close(self) -> None:
        self._db.close(True)

    def _index(self) -> None:
        present = {row[1] for row in self._db.execute("PRAGMA table_info(kept)")}
        for source in range(self._sources):
            if f"s{source}" not in present:
                self._db.execute(f"ALTER TABLE kept ADD COLUMN s{source} BLOB")
                self._db.execute(f"CREATE INDEX by{source} ON kept (s{source}) WHERE s{source} IS NOT NULL")

    def _load(self, fresh: Iterable[FreshRow], roots: Iterable[Key] | None) -> None:
        self._db.execute("DELETE FROM fresh; DELETE FROM touched")
        if roots is not None:
            self._db.executemany("INSERT OR IGNORE INTO touched VALUES (?)", ((pack(root),) for root in roots))
        seen: dict[bytes, int] = {}
        size = 0
        for place, row in enumerate(fresh):
            cells = pack(row.cells)
            key = pack(row.keys) if self._sources else _nth(cells, seen)
            size += len(cells) + len(key)
            if place >= self._most_rows or size > MAX_BYTES:
                raise BadRequest(_BOUND)
            self._db.execute("INSERT OR REPLACE INTO fresh VALUES (?, ?, ?)", (key, cells, place))

    def _changes(self, gone: list[Any], other: list[Any]) -> Iterator[RowChange]:
        """What a row was when it goes, what it is when it stays or comes. Without keys, one that goes while one comes
        has only changed."""
        if not self._sources and len(gone) == len(other) == 1:
            (row_id, _), (_, key, cells) = gone[0], other[0]
            self._update(row_id, key, cells)
            yield _change("update", row_id, cells)
            return
        for row_id, cells in gone:
            self._db.execute("DELETE FROM kept WHERE id = ?", (row_id,))
            yield _change("delete", row_id, cells)
        for known, key, cells in other:
            if known is None:
                yield _change("insert", self._insert(key, cells), cells)
            else:
                self._update(known, key, cells)
                yield _change("update", known, cells)

    def _insert(self, key: bytes, cells: bytes) -> int:
        names = "".join(f", s{source}" for source in range(self._sources))
        marks = ", ?" * self._sources
        held = [None if part is None else pack(part) for part in _decode(key)] if self._sources else []
        self._db.execute(f"INSERT INTO kept (key, cells{names}) VALUES (?, ?{marks})", (key, cells, *held))
        return int(self._db.last_insert_rowid())

    def _update(self, row_id: int, key: bytes, cells: bytes) -> None:
        self._db.execute("UPDATE kept SET key = ?, cells = ? WHERE id = ?", (key, cells, row_id))

    def _write(self, changes: Sequence[RowChange]) -> None:
        kept = changes[-self._history :]
        rows = [(change.number, change.kind, change.row_id, pack(change.row)) for change in kept]
        self._db.executemany("INSERT INTO changes VALUES (?, ?, ?, ?)", rows)
        last = self._last + len(changes)
        if last - self._floor >= self._history + _SLACK:
            self._db.execute("DELETE FROM changes WHERE number <= ?", (last - self._history,))

    def _one(self, sql: str) -> int | None:
        row = self._db.execute(sql).fetchone()
        return row[0] if row else None


class ResultSnapshot:
    """The kept answer as it is at one moment, read while it changes. All methods block."""

    def __init__(self, file: Path) -> None:
        self._db = apsw.Connection(f"file:{quote(str(file))}?mode=ro", flags=_READ)
        self._db.execute("BEGIN")
        numbers: Any = self._db.execute("SELECT coalesce(max(number), 0), coalesce(min(number), 1) FROM changes")
        self.last: int
        self.floor: int
        self.last, self.floor = numbers.fetchone()
        self._rows: Any = None

    def rows(self, count: int) -> list[tuple[int, tuple[Value, ...]]]:
        """The next ones, with their ids; empty at the end."""
        if self._rows is None:
            self._rows = self._db.execute("SELECT id, cells FROM kept ORDER BY id")
        taken = []
        for row_id, cells in self._rows:
            taken.append((row_id, _decode(cells)))
            if len(taken) == count:
                break
        return taken

    def changes_after(self, number: int) -> list[RowChange]:
        rows = self._db.execute("SELECT kind, row_id, cells, number FROM changes WHERE number > ?", (number,))
        return [RowChange(kind=kind, row_id=row_id, row=_decode(cells), number=at) for kind, row_id, cells, at in rows]

    def close(self) -> None:
        self._db.close(True)


_READ = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


def completed_query(file: Path) -> CachedQuery | None:
    """The query of a file of an earlier process; None when it was not closed well, or is none of ours."""
    try:
        db = apsw.Connection(f"file:{quote(str(file))}?mode=ro", flags=_READ)
        try:
            pairs: list[Any] = db.execute("SELECT name, value FROM meta").fetchall()
        finally:
            db.close(True)
        meta = dict(pairs)
        if meta.get("state") != "completed":
            return None
        return msgspec.json.decode(meta["about"], type=CachedQuery)
    except (apsw.Error, KeyError, msgspec.MsgspecError):
        return None


def _nth(cells: bytes, seen: dict[bytes, int]) -> bytes:
    """An identity for a row that has none: what it holds, and how many such came before it."""
    count = seen.get(cells, 0)
    seen[cells] = count + 1
    return pack((cells, count))


def _change(kind: str, row_id: int, cells: bytes) -> RowChange:
    return RowChange(kind=kind, row_id=row_id, row=_decode(cells), number=0)
