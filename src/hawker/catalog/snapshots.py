"""Snapshots: all streams at one moment as one compressed file, made from the live database and carried over streams.

A node that begins, or is far behind, takes this file instead of row after row. It has nothing that is one node's alone
(members, freshness, log, indexes). Reads and writes go on meanwhile, on both sides.
"""

import hashlib
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio
import apsw
import zstandard

from hawker.catalog.change import Scope
from hawker.catalog.contract import Touched
from hawker.catalog.messages import SnapshotAsk, SnapshotMeta, SnapshotPart, SnapshotRead, decode, encode
from hawker.catalog.schema import quoted
from hawker.clock import Clock
from hawker.errors import BadRequest, NotFound, Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.ids import NodeId

_LEVEL = 3
_CHUNK = 1024 * 1024
_COPIED = ("__c_table", "__c_origin", "__c_unknown", "__c_quarantine")
_OF_STREAMS = "stream IN (SELECT number FROM draft.__c_origin)"


class CatalogSnapshot:
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


def make(source: Path, target: Path, scopes: Collection[Scope]) -> CatalogSnapshot:
    """Makes a snapshot of the database. Blocks, in any thread: it reads one moment of the live database, which goes on
    meanwhile. `target` and a draft beside it are written; raises `Unavailable` when that cannot be done."""
    draft = target.with_name(f"{target.name}.draft")
    draft.unlink(missing_ok=True)
    try:
        _copy(source, draft, scopes)
        return CatalogSnapshot(target, _compress(draft, target))
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
    """The columns of a table that are stored, without those that are computed."""
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


# The catalog as one compressed file, for a node that begins or is far behind: the rows of all streams at one
# moment, with what is known of each, and nothing that is this node's alone (members, lease, log, indexes).

M = TypeVar("M", SnapshotMeta, SnapshotPart)

CHUNK_BYTES = 4 << 20
MOST_BYTES = 4 << 30
KEPT_S = 120.0
MAKE_S = 120.0
READ_S = 60.0
FAR_BEHIND = 100_000
FRESH_BEHIND = 2_000


class SnapshotStorage(Protocol):
    """The snapshots that a storage offers beside `contract.Storage`. Both methods block, in any thread, and hold up
    nothing for long."""

    def snapshot(self, target: Path, scopes: Collection[Scope]) -> CatalogSnapshot: ...

    def install(self, file: Path, digest: str) -> Touched: ...


class SnapshotExchange:
    """`place` is a folder for the files; what a run before left there is removed. A snapshot is worth its while with
    so many versions missing: `far`, or `fresh` for a node that begins."""

    def __init__(
        self,
        storage: SnapshotStorage,
        place: Path,
        clock: Clock,
        ask: Callable[[NodeId, bytes, float], Awaitable[bytes]],
        *,
        far: int = FAR_BEHIND,
        fresh: int = FRESH_BEHIND,
    ) -> None:
        self.far, self.fresh = far, fresh
        self._storage, self._place, self._clock, self._ask = storage, place, clock, ask
        self._kept: dict[int, tuple[CatalogSnapshot, float, frozenset[Scope]]] = {}
        self._number = 0
        self._making = anyio.Lock()
        for stale in place.glob("snapshot-*"):
            stale.unlink(missing_ok=True)

    async def answer(self, message: SnapshotAsk | SnapshotRead) -> bytes:
        """The answer to a question about a snapshot. Raises `Unavailable` when none can be made, `NotFound` when it is
        not kept any more."""
        with _or_unavailable():
            return await self._answer(message)

    async def _answer(self, message: SnapshotAsk | SnapshotRead) -> bytes:
        self._drop(self._clock.monotonic() - KEPT_S)
        if isinstance(message, SnapshotAsk):
            return encode(await self._meta(frozenset(message.scopes)))
        if message.number not in self._kept or message.offset < 0:
            raise NotFound("that snapshot of the catalog is not kept any more; ask for another")
        snapshot, _, scopes = self._kept[message.number]
        self._kept[message.number] = (snapshot, self._clock.monotonic(), scopes)
        data = await in_thread(Pool.REPLICA, snapshot.read, message.offset, CHUNK_BYTES)
        return encode(SnapshotPart(data=data))

    async def take(self, whom: NodeId, scopes: Iterable[Scope]) -> Touched:
        """Takes all that another node has into the storage. Raises `Unavailable`, `BadRequest` when it does not
        work."""
        with _or_unavailable():
            return await self._take(whom, scopes)

    async def _take(self, whom: NodeId, scopes: Iterable[Scope]) -> Touched:
        meta = _expect(SnapshotMeta, await self._ask(whom, encode(SnapshotAsk(scopes=tuple(scopes))), MAKE_S))
        if not 0 < meta.size <= MOST_BYTES:
            raise BadRequest(f"a snapshot of {meta.size} bytes is not taken")
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._number += 1
        file = self._place / f"snapshot-taken-{self._number}"
        try:
            await self._fetch(whom, meta, file)
            return await in_thread(Pool.REPLICA, self._storage.install, file, meta.digest)
        finally:
            file.unlink(missing_ok=True)

    def close(self) -> None:
        self._drop(float("inf"))

    async def _fetch(self, whom: NodeId, meta: SnapshotMeta, file: Path) -> None:
        offset = 0
        async with await anyio.open_file(file, "wb") as out:
            while offset < meta.size:
                read = SnapshotRead(number=meta.number, offset=offset)
                part = _expect(SnapshotPart, await self._ask(whom, encode(read), READ_S))
                if not part.data:
                    raise Unavailable("a snapshot ended before its end; another node is asked")
                await out.write(part.data[: meta.size - offset])
                offset += len(part.data)

    async def _meta(self, scopes: frozenset[Scope]) -> SnapshotMeta:
        async with self._making:
            for number, (snapshot, _, kept) in self._kept.items():
                if kept == scopes:
                    return SnapshotMeta(number=number, size=snapshot.size_bytes, digest=snapshot.digest)
            self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._number += 1
            number = self._number
            target = self._place / f"snapshot-{number}"
            snapshot = await in_thread(Pool.REPLICA, partial(self._storage.snapshot, target, scopes))
            self._kept[number] = (snapshot, self._clock.monotonic(), scopes)
            return SnapshotMeta(number=number, size=snapshot.size_bytes, digest=snapshot.digest)

    def _drop(self, before: float) -> None:
        for number, (snapshot, used, _) in [*self._kept.items()]:
            if used < before:
                del self._kept[number]
                snapshot.close()


@contextmanager
def _or_unavailable() -> Iterator[None]:
    """For what the disk refuses: it may be full for a while, and nobody ends because of that."""
    try:
        yield
    except (apsw.Error, OSError) as error:
        raise Unavailable(f"no snapshot of the catalog can be kept now: {error}") from error


def _expect(kind: type[M], raw: bytes) -> M:
    try:
        message = decode(raw)
    except ValueError as error:
        raise Unavailable(f"an answer about a snapshot cannot be read: {error}") from error
    if not isinstance(message, kind):
        raise Unavailable("an answer about a snapshot is about something else")
    return message
