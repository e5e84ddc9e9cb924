"""The catalog as one compressed file, for a node that begins or is far behind: the rows of all streams at one moment,
with what is known of each, and nothing that is this node's alone (members, lease, log, indexes).
"""

import hashlib
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import zstandard

from hawker.catalog.change import Scope
from hawker.catalog.definition import quoted
from hawker.errors import Unavailable

_LEVEL = 3
_CHUNK = 1024 * 1024
_COPIED = ("__c_table", "__c_origin", "__c_unknown", "__c_quarantine")
_OF_STREAMS = "stream IN (SELECT number FROM draft.__c_origin)"


class Snapshot:
    """A file that is there until `close`. Parts may be read in any order and again."""

    def __init__(self, path: Path, digest: str) -> None:
        self._path, self.digest = path, digest  # SHA-256 of the whole, hex
        self.size_bytes = path.stat().st_size
        self._file = path.open("rb")

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, offset)

    def close(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


def make(source: Path, target: Path, scopes: Collection[Scope]) -> Snapshot:
    """Blocks, in any thread: it reads one moment of the live database, which goes on meanwhile. `target` and a draft
    beside it are written; raises `Unavailable` when that cannot be done."""
    draft = target.with_name(f"{target.name}.draft")
    draft.unlink(missing_ok=True)
    try:
        _copy(source, draft, scopes)
        return Snapshot(target, _compress(draft, target))
    except (apsw.Error, OSError) as error:
        target.unlink(missing_ok=True)
        raise Unavailable(f"no snapshot of the catalog could be made: {error}") from error
    finally:
        draft.unlink(missing_ok=True)


def _copy(source: Path, draft: Path, scopes: Collection[Scope]) -> None:
    with _attached(source, draft) as connection:
        for table in _COPIED:
            connection.execute(_elsewhere(connection, table))
        wanted = ", ".join(f"'{scope.value}'" for scope in scopes)
        connection.execute(f"INSERT INTO draft.__c_origin SELECT * FROM main.__c_origin WHERE scope IN ({wanted})")
        connection.execute(f"INSERT INTO draft.__c_table SELECT * FROM main.__c_table WHERE scope IN ({wanted})")
        for table in ("__c_unknown", "__c_quarantine"):
            connection.execute(f"INSERT INTO draft.{table} SELECT * FROM main.{table} WHERE {_OF_STREAMS}")
        names: list[Any] = connection.execute("SELECT name FROM draft.__c_table").fetchall()
        for (name,) in names:
            for table in (name, f"{name}__m"):
                connection.execute(_elsewhere(connection, table))
                columns = ", ".join(map(quoted, stored(connection, "main", table)))
                connection.execute(
                    f"INSERT INTO draft.{quoted(table)} ({columns}) SELECT {columns} FROM main.{quoted(table)}"
                )


@contextmanager
def _attached(source: Path, draft: Path) -> Iterator[apsw.Connection]:
    """One transaction that sees one moment of the source, and writes the draft."""
    connection = apsw.Connection(str(source))
    try:
        connection.set_busy_timeout(5_000)
        connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
        connection.execute("ATTACH ? AS draft", (str(draft),))
        connection.execute("PRAGMA draft.journal_mode = OFF").fetchall()
        connection.execute("PRAGMA draft.synchronous = OFF").fetchall()
        connection.execute("BEGIN")
        yield connection
        connection.execute("COMMIT")
    finally:
        connection.close(True)


def _elsewhere(connection: apsw.Connection, table: str) -> str:
    """The text that makes the same table in the draft."""
    sql = connection.execute("SELECT sql FROM main.sqlite_schema WHERE type = 'table' AND name = ?", (table,)).get
    head, body = sql[: sql.index("(")], sql[sql.index("(") :]
    assert head.split()[:2] == ["CREATE", "TABLE"], head
    return f"CREATE TABLE draft.{quoted(table)} {body}"


def stored(connection: apsw.Connection, schema: str, table: str) -> tuple[str, ...]:
    """Its columns, without those that are computed."""
    text = "SELECT name FROM pragma_table_xinfo(?, ?) WHERE hidden = 0"
    rows: list[Any] = connection.execute(text, (table, schema)).fetchall()
    return tuple(name for (name,) in rows)


def _compress(draft: Path, target: Path) -> str:
    digest = hashlib.sha256()
    compressor = zstandard.ZstdCompressor(level=_LEVEL, threads=2)
    with draft.open("rb") as reading, target.open("wb") as writing:
        os.fchmod(writing.fileno(), 0o600)
        for chunk in compressor.read_to_iter(reading, size=draft.stat().st_size, write_size=_CHUNK):
            digest.update(chunk)
            writing.write(chunk)
    return digest.hexdigest()
