"""The store on disk: one SQLite file in WAL mode. All of Hawker's key-value SQL is in this file.

The file is held with an exclusive lock for as long as it is open (`unix-excl`: locks against other processes, shared
memory of this process's connections on the heap), so nobody can write under a live daemon. One connection writes, in
the writer's thread; the others only read, in the caller's thread, and never wait for the writer.
"""

import asyncio
import ctypes
import errno
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import anyio
import apsw

from hawker.errors import CannotStart, HawkerError, Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.store.contract import (
    Bucket,
    ChangeListener,
    ChangeListeners,
    Durability,
    Reader,
    SilentStoreObserver,
    StoreObserver,
    Tx,
    decode,
    encode,
)
from hawker.store.writer import Job, StoreWriter

T = TypeVar("T")
R = TypeVar("R")

APPLICATION_ID = 0x68776B72  # "hwkr", in the file's header
SCHEMA_VERSION = 1
PAGE_BYTES = 4096
CHECKPOINT_PAGES = 1000  # how far the log grows before it is copied into the file
RESERVE_BYTES = 32 << 20  # of the disk, for the log alone
_FRAME_BYTES = 24  # before each page of the log

_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE pairs (bucket TEXT, key BLOB, value BLOB, PRIMARY KEY (bucket, key)) WITHOUT ROWID;
CREATE TABLE pulse (id INTEGER PRIMARY KEY, beats INTEGER);
INSERT INTO pulse VALUES (0, 0);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""
_GET = "SELECT value FROM pairs WHERE bucket = ? AND key = ?"
_PUT = "INSERT INTO pairs VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET value = ?3"
_DELETE = "DELETE FROM pairs WHERE bucket = ? AND key = ?"
_COUNT = "SELECT count(*) FROM pairs WHERE bucket = ? AND key >= ? AND key < ?"
_SCAN = "SELECT key, value FROM pairs WHERE bucket = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?"
_SIZES = "SELECT key, length(value) FROM pairs WHERE bucket = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?"
_SCAN_BACK = "SELECT key, value FROM pairs WHERE bucket = ? AND key >= ? AND key < ? ORDER BY key DESC LIMIT ?"
_PULSE = "UPDATE pulse SET beats = beats + 1"

_log = logging.getLogger("hawker.store")


class SqliteStore:
    """Keeps `store.contract.Store`, and `Observable`; `reserve_bytes` are kept on the disk for it. Raises `CannotStart`
    when the file is in use, damaged or too new."""

    def __init__(
        self,
        path: Path,
        observer: StoreObserver | None = None,
        *,
        writer: Callable[..., StoreWriter] = StoreWriter,
        reserve_bytes: int = 0,
    ) -> None:
        self._path = path
        self._reserve = DiskReserve(path.with_name(f"{path.name}-wal"), reserve_bytes)
        self._resting = RestingReserve(path.with_name(f"{path.name}-reserve"), reserve_bytes)
        self._observer = observer or SilentStoreObserver()
        self._listeners = ChangeListeners()
        self._resting.take_up()
        self._connection = _open(path)
        self._log_pages = 0
        self._connection.set_wal_hook(self._note_log_size)
        self._reader = _View(_connect(path))
        self._spare: list[apsw.Connection] = []
        self._writer = writer(self._commit, self._checkpoint, self._finish)
        self._reserve.begin()

    @property
    def waiting(self) -> int:
        """The number of transactions that the writer has not begun."""
        return self._writer.waiting

    @property
    def lacks_reserve(self) -> str:
        """Why the disk keeps nothing for the store, "" while it does: when it is full, changes may be refused. A lack
        from the beginning is told by whoever opened the store; one that comes later is logged."""
        return self._reserve.lacking

    def listen(self, listener: ChangeListener) -> None:
        self._listeners.add(listener)

    def get(self, bucket: Bucket[T], key: str) -> T | None:
        """The value of `key`; None when there is none. Raises `Unavailable` when the file cannot be read."""
        try:
            return self._reader.get(bucket, key)
        except apsw.Error as error:
            raise _as_unavailable(error) from error

    def scan(
        self,
        bucket: Bucket[T],
        prefix: str = "",
        *,
        after: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[str, T]]:
        with _translated():
            return self._reader.scan(bucket, prefix, after=after, limit=limit, reverse=reverse)

    def count(self, bucket: Bucket[T], prefix: str = "") -> int:
        with _translated():
            return self._reader.count(bucket, prefix)

    def sizes(
        self, bucket: Bucket[Any], prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> list[tuple[str, int]]:
        with _translated():
            return self._reader.sizes(bucket, prefix, after=after, limit=limit)

    async def write(self, apply: Callable[[Tx], R], durability: Durability = Durability.DURABLE) -> R:
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._writer.submit(Job(apply, durability, future))
        return await future

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        with _translated():
            connection = self._spare.pop() if self._spare else _connect(self._path)
            connection.execute("BEGIN")
            connection.execute("SELECT beats FROM pulse").fetchall()  # the view is fixed by the first read
        try:
            yield _View(connection)
        finally:
            connection.execute("ROLLBACK")
            self._spare.append(connection)

    async def backup(self, target: Path, mark: Callable[[Tx], None] | None = None) -> None:
        await in_thread(Pool.DISKS, _copy, self._path, target, mark)

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await in_thread(Pool.DISKS, self._writer.close)
        for connection in (self._reader.connection, *self._spare):
            connection.close()
        await in_thread(Pool.DISKS, self._resting.lay_down)

    # In the writer's thread.

    def _commit(self, group: list[Job]) -> None:
        """All of `group` in one transaction, each in a savepoint of its own, so that one that fails goes alone."""
        try:
            durable = any(job.durability is Durability.DURABLE for job in group)
            self._connection.execute("PRAGMA synchronous = FULL" if durable else "PRAGMA synchronous = NORMAL")
            self._connection.execute("BEGIN IMMEDIATE")
            for job in group:
                self._apply(job)
            if durable:  # an fsync comes with a changed page only, and a durable commit also covers those before it
                self._connection.execute(_PULSE)
            with self._observer.commit(len(group), durable=durable):
                self._connection.execute("COMMIT")
        except apsw.Error as error:
            self._fail(group, error)

    def _apply(self, job: Job) -> None:
        self._connection.execute("SAVEPOINT job")
        try:
            tx = _Transaction(self._connection, job.calls)
            job.result = job.apply(tx)
            if self._listeners and tx.changed:
                tx.on_commit(partial(self._listeners.tell, tx.changed))
        except BaseException as error:  # it is the caller's, and is raised there
            if not self._connection.in_transaction:  # SQLite has rolled back everything: disk full, I/O error
                raise apsw.Error(str(error)) from error
            job.error = _as_unavailable(error) if isinstance(error, apsw.Error) else error
            self._connection.execute("ROLLBACK TO job")
        self._connection.execute("RELEASE job")

    def _fail(self, group: list[Job], error: apsw.Error) -> None:
        self._observer.failed()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        for job in group:
            job.error = job.error or _as_unavailable(error)

    def _note_log_size(self, _connection: apsw.Connection, _schema: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Copy the log into the file between two groups, never inside a commit that someone waits for."""
        self._reserve.follow(self._log_pages * (PAGE_BYTES + _FRAME_BYTES))
        if self._log_pages < CHECKPOINT_PAGES:
            return
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            _log.warning("checkpoint failed", extra={"path": str(self._path), "reason": str(error)})

    def _finish(self) -> None:
        try:
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute(_PULSE)
            self._connection.close()
        except apsw.Error as error:
            _log.error("closing the store failed", extra={"path": str(self._path), "reason": str(error)})


class _View:
    """Reads over one connection. Rows are fetched at once, so that no cursor outlives the call."""

    __slots__ = ("connection",)

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection

    def get(self, bucket: Bucket[T], key: str) -> T | None:
        row = self.connection.execute(_GET, (bucket.name, key.encode())).fetchone()
        return None if row is None else decode(bucket, key, row[0])

    def scan(
        self,
        bucket: Bucket[T],
        prefix: str = "",
        *,
        after: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[tuple[str, T]]:
        low, high = _range(prefix)
        if after is not None and reverse:
            high = min(high, after.encode())
        elif after is not None:
            low = max(low, after.encode() + b"\0")
        bounds = (bucket.name, low, high, -1 if limit is None else limit)
        rows: list[Any] = self.connection.execute(_SCAN_BACK if reverse else _SCAN, bounds).fetchall()
        return ((name := key.decode(), decode(bucket, name, value)) for key, value in rows)

    def count(self, bucket: Bucket[T], prefix: str = "") -> int:
        counted: int = self.connection.execute(_COUNT, (bucket.name, *_range(prefix))).get
        return counted

    def sizes(
        self, bucket: Bucket[Any], prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> list[tuple[str, int]]:
        low, high = _range(prefix)  # a length is in the row's head: the value's further pages are not touched
        bounds = (bucket.name, low if after is None else max(low, after.encode() + b"\0"), high)
        rows: list[Any] = self.connection.execute(_SIZES, (*bounds, -1 if limit is None else limit)).fetchall()
        return [(key.decode(), size) for key, size in rows]


class _Transaction(_View):
    """`changed` has each bucket and key once, in the order of the first change."""

    __slots__ = ("_calls", "changed")

    def __init__(self, connection: apsw.Connection, calls: list[Callable[[], None]]) -> None:
        super().__init__(connection)
        self._calls = calls
        self.changed: dict[tuple[str, str], None] = {}

    def put(self, bucket: Bucket[T], key: str, value: T) -> None:
        self.changed[bucket.name, key] = None
        self.connection.execute(_PUT, (bucket.name, key.encode(), encode(value)))

    def delete(self, bucket: Bucket[T], key: str) -> None:
        self.changed[bucket.name, key] = None
        self.connection.execute(_DELETE, (bucket.name, key.encode()))

    def on_commit(self, call: Callable[[], None]) -> None:
        self._calls.append(call)


def _range(prefix: str) -> tuple[bytes, bytes]:
    """From the prefix to the first key beyond it; 0xFF is in no UTF-8 text."""
    low = prefix.encode()
    return low, low + b"\xff"


def _as_unavailable(error: BaseException) -> HawkerError:
    unavailable = Unavailable(f"the store cannot be used now: {error}")
    unavailable.__cause__ = error
    return unavailable


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise _as_unavailable(error) from error


# Opening and copying the file.


def _connect(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), vfs="unix-excl")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def _open(path: Path) -> apsw.Connection:
    """The writer's connection to a sound file of ours. Never open the file by other means in this process: closing
    any descriptor of it would drop the lock (POSIX)."""
    try:
        if not path.exists():
            _refuse_half_restored(path)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        elif 0 < path.stat().st_size < PAGE_BYTES:  # SQLite would take it for an empty one
            raise _damaged(path, "cut short")
        connection = _connect(path)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            _make_or_check(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection
    except apsw.BusyError as error:
        text = f"{path.parent} is in use by another hawker: stop it, or choose another data directory"
        raise CannotStart(text) from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise _damaged(path, str(error)) from error
    except (apsw.Error, OSError) as error:
        raise CannotStart(f"{path} cannot be opened: {error}") from error


def _make_or_check(connection: apsw.Connection, path: Path) -> None:
    if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,):
        connection.execute(_SCHEMA)
        return
    _check(connection, path)


def _check(connection: apsw.Connection, path: Path) -> None:
    if connection.pragma("application_id") != APPLICATION_ID:
        raise CannotStart(f"{path} is not a hawker store: choose another data directory")
    version = connection.pragma("user_version")
    if version > SCHEMA_VERSION:
        text = f"{path} was written by a newer hawker (store version {version}, known here: {SCHEMA_VERSION})"
        raise CannotStart(f"{text}: upgrade this one, or restore a backup made before")
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != ("ok",):
        raise _damaged(path, str(verdict[0] if verdict else "no verdict"))


def _damaged(path: Path, reason: str) -> CannotStart:
    what_to_do = "put a backup in its place with `hawker node restore FILE`, or move it away to begin empty"
    return CannotStart(f"{path} is damaged ({reason}): {what_to_do}")


def draft_of(path: Path) -> Path:
    """The path of a backup before it takes the place of the store at `path`."""
    return path.with_name(f"{path.name}.restoring")


def _refuse_half_restored(path: Path) -> None:
    if draft_of(path).exists():
        text = f"a restore of {path} was cut short: run `hawker node restore FILE` again"
        raise CannotStart(f"{text}, or remove {draft_of(path)} to begin empty")


def check_copy(path: Path) -> None:
    """Whether a node can begin with this file: ours, not newer than this version, whole. Reads it and leaves nothing
    beside it. Raises `CannotStart` with what is wrong."""
    try:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(f"file:{quote(str(path))}?immutable=1", flags=flags)
        try:
            _check(connection, path)
        finally:
            connection.close()
    except apsw.Error as error:
        raise CannotStart(f"{path} is no whole copy of a hawker store: {error}") from error


def _copy(source: Path, target: Path, mark: Callable[[Tx], None] | None) -> None:
    """A consistent copy of one moment, complete and on disk before it takes the target's name."""
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    try:
        with _translated():
            _copy_pages(source, partial, mark)
    except HawkerError:
        partial.unlink(missing_ok=True)
        raise
    partial.replace(target)


def _copy_pages(source: Path, partial: Path, mark: Callable[[Tx], None] | None) -> None:
    reading, writing = _connect(source), apsw.Connection(str(partial))
    try:
        with writing.backup("main", reading, "main") as backup:
            backup.step(-1)
        writing.execute("PRAGMA journal_mode = DELETE")
        if mark is not None:
            with writing:
                mark(_Transaction(writing, []))
    finally:
        writing.close()
        reading.close()


# Room on the disk that only the log can use: blocks beyond its end, which belong to the file already, and which SQLite
# does not see. A full disk, whoever filled it, so lets the node go on recording for a while: above all that machines
# are stopped and destroyed, which makes room. The blocks stay when the log begins anew from its start.

_KEEP_SIZE = 1
_STEP_BYTES = 4 << 20
_UNSERVED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})
_libc = ctypes.CDLL(None, use_errno=True)


class DiskReserve:
    """`keep_bytes` beyond the end of `file`. Keeps what it has where the disk has no more."""

    def __init__(self, file: Path, keep_bytes: int) -> None:
        self._file = file
        self._keep_bytes = keep_bytes
        self._reserved = 0
        self.lacking = ""
        """Why there is no reserve."""

    def begin(self) -> None:
        """Makes the reserve before anything is written, where the file is there already."""
        if self._file.exists():
            self.follow(self._file.stat().st_size)

    def follow(self, size_bytes: int) -> None:
        """The file is this long now. In steps, so that most calls do nothing."""
        if self._keep_bytes and size_bytes + self._keep_bytes > self._reserved:
            self._extend(size_bytes + self._keep_bytes)

    def _extend(self, end: int) -> None:
        """To `end`, and a step beyond it where the disk has the room."""
        try:
            with suppress(OSError):
                reserve(self._file, end + _STEP_BYTES)
                end += _STEP_BYTES
            reserve(self._file, end)
        except OSError as error:
            reason = error.strerror or str(error)
            if self._reserved and not self.lacking:
                _log.warning("the store has no reserve on the disk any more", extra={"reason": reason})
            self.lacking = reason
            self._reserved = end if error.errno in _UNSERVED else self._reserved
            return
        if self.lacking:
            _log.info("the store has its reserve on the disk again")
        self._reserved, self.lacking = end, ""


class RestingReserve:
    """The reserve while no daemon runs: an orderly stop removes the log, and what it held."""

    def __init__(self, file: Path, keep_bytes: int) -> None:
        self._file = file
        self._keep_bytes = keep_bytes

    def lay_down(self) -> None:
        """No effect where the disk has no room, or cannot reserve."""
        if self._keep_bytes:
            with suppress(OSError):
                self._file.touch(mode=0o600)
                reserve(self._file, self._keep_bytes + _STEP_BYTES)

    def take_up(self) -> None:
        """Frees the blocks of the reserve for the log, which comes to have them before anything else is written."""
        self._file.unlink(missing_ok=True)


def reserve(file: Path, end: int) -> None:
    """Reserves blocks up to the offset `end`; the file stays as long as it is. Raises `OSError`."""
    fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        if _libc.fallocate(fd, _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(end)) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    finally:
        os.close(fd)
