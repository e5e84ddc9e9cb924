"""Takes what a snapshot knows more into the live database, one stream a transaction: a crash leaves each stream as it
was or as the snapshot has it. This node's own streams, and those of which it knows more, stay as they are. A stream is
compacted to what its rows are now: the last op of each row that changed beyond a version, by version.
"""

import hashlib
import heapq
import os
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec
import zstandard

from hawker.catalog.apply import BatchApplier, StorageParts
from hawker.catalog.capture import op_size
from hawker.catalog.change import Delta, Scope, VersionedOp
from hawker.catalog.quarantine import QuarantineTable, key_of
from hawker.catalog.rows import TableRows
from hawker.catalog.schema import Replicated, describe, quoted
from hawker.catalog.snapshots import stored
from hawker.catalog.streams import RESETTING, StreamPositions, StreamState
from hawker.errors import BadRequest


def delta(
    stream: StreamState,
    rows: Mapping[str, TableRows],
    quarantines: Iterable[QuarantineTable],
    after: int,
    max_bytes: int,
    since: int,
) -> Delta:
    """The delta of a stream: see `contract.Storage.delta`."""
    if not stream.begun or stream.applied == RESETTING or after > stream.applied:
        return _nothing(stream, after)
    reset = after < max(stream.floor, 0) or since >= 0
    if reset and (since < 0 or stream.floor > since):
        after = RESETTING
    ops, upto = _part(compacted_changes(stream, rows, quarantines, after), max_bytes)
    return Delta(
        origin=stream.origin,
        scope=stream.scope,
        epoch=stream.epoch,
        reset=reset,
        after=after,
        upto=stream.applied if upto is None else upto,
        floor=stream.floor,
        ops=ops,
        last=upto is None,
        head=stream.applied,
    )


def _nothing(stream: StreamState, after: int) -> Delta:
    """A part that fits nowhere: this replica does not know more."""
    return Delta(
        stream.origin, stream.scope, stream.epoch, False, after, after, stream.floor, (), True, max(stream.applied, 0)
    )


def _part(changes: Iterator[VersionedOp], max_bytes: int) -> tuple[tuple[VersionedOp, ...], int | None]:
    """Whole versions, until they are too much; the version that the part comes to, None when nothing is left."""
    ops: list[VersionedOp] = []
    size = 0
    for change in changes:
        if size >= max_bytes and ops and ops[-1].version != change.version:
            return tuple(ops), ops[-1].version
        ops.append(change)
        size += op_size(change.op)
    return tuple(ops), None


def compacted_changes(
    stream: StreamState, rows: Mapping[str, TableRows], quarantines: Iterable[QuarantineTable], after: int
) -> Iterator[VersionedOp]:
    """The changes of a stream after version `after`, one of each row. What was set aside takes the place of what the
    tables have of that row."""
    kept = {
        (kept.op.table, key_of(kept.op.key)): kept
        for quarantine in quarantines
        for kept in quarantine.of(stream.number, after)
    }
    apart = [VersionedOp(each.version, each.op) for each in sorted(kept.values(), key=lambda each: each.version)]
    tables = [each.changed(stream.origin, after) for each in rows.values() if each.table.scope is stream.scope]
    placed = heapq.merge(*tables, key=lambda change: change.version)
    if kept:
        placed = (change for change in placed if (change.op.table, key_of(change.op.key)) not in kept)
    return heapq.merge(placed, apart, key=lambda change: change.version)


UNPACKED_BYTES = 8 * 1024 * 1024 * 1024
_CHUNK = 1024 * 1024
_WINDOW_BYTES = 128 * 1024 * 1024


class SnapshotRefused(BadRequest):
    """A file that is no whole snapshot; nothing was taken from it."""

    prefix = ""


class Draft:
    """A snapshot that was unpacked beside the database, looked through, and may be taken from."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = apsw.Connection(str(path))
        self._connection.execute("PRAGMA trusted_schema = 0")
        self.tables = _tables(self._connection)
        self._rows = {name: TableRows(self._connection, table, indexed=False) for name, table in self.tables.items()}
        self._asides = [QuarantineTable(self._connection, name) for name in ("__c_unknown", "__c_quarantine")]
        self.streams = [*StreamPositions(self._connection).all()]

    def changes(self, stream: StreamState) -> Iterator[VersionedOp]:
        """The changes that the draft knows of a stream, row by row."""
        return compacted_changes(stream, self._rows, self._asides, RESETTING)

    def has_others(self, stream: StreamState, alike: Container[str]) -> bool:
        """Whether there is anything of a stream beside those tables."""
        placed = any(
            rows.count(stream.origin)
            for name, rows in self._rows.items()
            if name not in alike and rows.table.scope is stream.scope
        )
        return placed or any(True for quarantine in self._asides for _ in quarantine.of(stream.number))

    def close(self) -> None:
        self._connection.close(True)


@contextmanager
def opened(file: Path, digest: str, path: Path) -> Iterator[Draft]:
    """`file` as it came, unpacked at `path` for as long as the block lasts. Raises `SnapshotRefused`, and `OSError` for
    a disk that does not take it, which gets back what was written."""
    path.unlink(missing_ok=True)
    try:
        with closing(_drafted(file, digest, path)) as draft:
            yield draft
    finally:
        path.unlink(missing_ok=True)


def _drafted(file: Path, digest: str, path: Path) -> Draft:
    try:
        _unpack(file, digest, path)
        return Draft(path)
    except (apsw.Error, zstandard.ZstdError, ValueError, TypeError) as error:
        raise SnapshotRefused(f"the snapshot is damaged: {error}") from error


def is_further(theirs: StreamState, ours: StreamState | None) -> bool:
    """Whether the snapshot's stream replaces ours: what a reset would do."""
    if theirs.applied == RESETTING or not theirs.begun:
        return False
    if ours is None or not ours.begun:
        return ours is None or theirs.epoch > ours.fence
    if theirs.epoch <= ours.fence:
        return False
    return (theirs.epoch, theirs.applied) > (ours.epoch, ours.applied)


def take(connection: apsw.Connection, draft: Draft, parts: StorageParts, theirs: StreamState, now: float) -> None:
    """Takes one stream from a draft, inside the caller's transaction, with the draft attached as `draft`."""
    ours = parts.origins.get(theirs.origin, theirs.scope)
    stream = msgspec.structs.replace(
        ours, epoch=theirs.epoch, applied=theirs.applied, floor=theirs.floor, run=ours.run + 1, came=RESETTING
    )
    parts.log.drop(stream.number)
    for quarantine in (parts.unknown, parts.quarantine):
        quarantine.drop(stream.number)
    tables = {name: rows for name, rows in parts.rows.items() if rows.table.scope is stream.scope}
    for rows in tables.values():
        rows.drop(stream.origin)
    alike = _alike(connection, draft, theirs, tables)
    connection.execute("SAVEPOINT taking")
    try:
        for name in alike:
            _copy(connection, tables[name].table, stream, now)
    except (apsw.ConstraintError, apsw.MismatchError):
        connection.execute("ROLLBACK TO taking")
        alike = frozenset()
    connection.execute("RELEASE taking")
    parts.origins.put(stream)
    if not draft.has_others(theirs, alike):
        return
    batch = BatchApplier(parts, now)
    for change in draft.changes(theirs):
        if change.op.table not in alike:
            batch.place(stream, change.version, change.op)


def _alike(
    connection: apsw.Connection, draft: Draft, theirs: StreamState, tables: Mapping[str, TableRows]
) -> frozenset[str]:
    """Tables that both have with the same columns, and of which no row was set aside."""
    each = (f"SELECT tbl FROM draft.{table} WHERE stream = ?1" for table in ("__c_unknown", "__c_quarantine"))
    text = " UNION ".join(each)
    quarantine: list[Any] = connection.execute(text, (theirs.number,)).fetchall()
    both = (name for name in tables if name in draft.tables and (name,) not in quarantine)
    return frozenset(name for name in both if stored(connection, "main", name) == stored(connection, "draft", name))


def _copy(connection: apsw.Connection, table: Replicated, stream: StreamState, now: float) -> None:
    name, side, owner = quoted(table.name), quoted(f"{table.name}__m"), quoted(table.key[0])
    columns = ", ".join(map(quoted, stored(connection, "main", table.name)))
    text = f"INSERT INTO main.{name} ({columns}) SELECT {columns} FROM draft.{name} WHERE {owner} = ?"
    connection.execute(text, (stream.origin,))
    keys = ", ".join(map(quoted, table.key))
    died = "CASE WHEN __del > 0 THEN ? ELSE 0 END"
    text = f"INSERT INTO main.{side} ({keys}, __ver, __del, __run) SELECT {keys}, __ver, {died}, ?"
    connection.execute(f"{text} FROM draft.{side} WHERE {owner} = ?", (max(1, int(now)), stream.run, stream.origin))


def _tables(connection: apsw.Connection) -> Mapping[str, Replicated]:
    """Plain tables only: whoever made the file could have put others in it."""
    if connection.execute("PRAGMA quick_check(1)").get != "ok":
        raise ValueError("its pages are no whole database")
    kinds: list[Any] = connection.execute("SELECT DISTINCT type FROM sqlite_schema").fetchall()
    if set(kinds) - {("table",), ("index",)}:
        raise ValueError("it has more than tables")
    rows: list[Any] = connection.execute("SELECT name, scope FROM __c_table").fetchall()
    return {name: describe(connection, name, Scope(scope)) for name, scope in rows}


def _unpack(file: Path, digest: str, path: Path) -> None:
    with file.open("rb") as reading:
        if hashlib.file_digest(reading, "sha256").hexdigest() != digest:
            raise ValueError("it is not the file that was promised")
        reading.seek(0)
        unpacked = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES).stream_reader(reading)
        with path.open("wb") as writing:
            os.fchmod(writing.fileno(), 0o600)
            while chunk := unpacked.read(_CHUNK):
                writing.write(chunk)
                if writing.tell() > UNPACKED_BYTES:
                    raise ValueError(f"it unpacks to more than {UNPACKED_BYTES} bytes")
