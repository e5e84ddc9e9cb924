"""The catalog's database as a whole: keeps `contract.Storage`. One thread writes; a lock makes a second one wait. Reads
of users do not come here but for `query`; they have connections of their own (guarded.py).
"""

import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any
from urllib.parse import quote

import apsw
import msgspec

from hawker.catalog import snapshot_install
from hawker.catalog.apply import BatchApplier, StorageParts
from hawker.catalog.capture import Statements
from hawker.catalog.change import Delta, Position, ReplicatedTx, Scope, Value
from hawker.catalog.commits import Commits, FreshnessFile, TransactionLost, boot_id
from hawker.catalog.contract import ApplyOutcome, Committed, LocalTransaction, ResultTable, Statement, Touched
from hawker.catalog.database import Database, evolve, tables_of
from hawker.catalog.quarantine import QuarantineTable
from hawker.catalog.read_connection import ReadConnection
from hawker.catalog.rows import TableRows
from hawker.catalog.schema import fingerprint, read, shipped
from hawker.catalog.snapshot_install import Draft, is_further, opened, take
from hawker.catalog.snapshots import CatalogSnapshot, make
from hawker.catalog.streams import LOG_AGE_S, RESETTING, ReplayLog, StreamPositions, StreamState
from hawker.clock import Clock
from hawker.errors import BadRequest, HawkerError, Unavailable
from hawker.ids import NodeId

ROWS_PER_VERSION = 32  # of a stream that begins again; so many long ones still fit one message
QUERY_ROWS = 100_000
QUERY_BYTES = 64 * 1024 * 1024

_log = logging.getLogger("hawker.catalog")


class MemberRow(msgspec.Struct, frozen=True, kw_only=True):
    """A node as gossip sees it: `since` is Unix seconds, `rtt` seconds if it was measured, `epoch` its incarnation."""

    host: NodeId
    state: str
    """alive, suspect or dead."""
    since: float
    rtt: float | None = None
    epoch: int = 0


class SqliteStorage:
    """Opens or makes the file. `schemas` are the texts of the operator's own schema files, beside the shipped tables.
    Raises `CannotStart` for a file that cannot be used and `SchemaRefused` for a text that cannot be taken."""

    def __init__(
        self, path: Path, node: NodeId, clock: Clock, schemas: Sequence[str] = (), *, boot: Callable[[], str] = boot_id
    ) -> None:
        self._path, self._node, self._clock = path, node, clock
        self._installing = path.with_name(f"{path.name}.installing")
        self._installing.unlink(missing_ok=True)  # of a daemon that died with it
        self._lock = RLock()
        self._database = Database(path)
        self._connection = self._database.connection
        self._connection.create_scalar_function("next_version", self._next_version, 0)
        self._counter: Iterator[int] = iter(())
        self._statements = Statements(self._connection, clock)
        self._origins = StreamPositions(self._connection)
        self._log = ReplayLog(self._connection)
        self._unknown = QuarantineTable(self._connection, "__c_unknown")
        self._quarantine = QuarantineTable(self._connection, "__c_quarantine")
        self._rows: Mapping[str, TableRows] = {}
        self._outdated = False
        self._fingerprint = ""
        self._reader: ReadConnection | None = None
        try:
            self.declare(schemas)
            self._freshness = FreshnessFile(path.with_name(f"{path.name}.lease"), boot())
            self._proven = self._prove()
            self._renewed = set(Scope) if self._proven else set()
        except BaseException:
            self._database.close()
            raise

    @property
    def node(self) -> NodeId:
        return self._node

    @property
    def path(self) -> Path:
        return self._path

    # Schema.

    @property
    def schema_fingerprint(self) -> str:
        return self._fingerprint

    def tables(self) -> Mapping[str, Scope]:
        """The tables that replicate, each with its scope."""
        return {name: rows.table.scope for name, rows in self._rows.items()}

    def declare(self, schemas: Sequence[str]) -> int:
        """Take the shipped tables and those of these texts; rows that waited for them come to their places. How many
        did. Raises `SchemaRefused`, and then nothing has changed."""
        ours = read((shipped(),))
        schema = read((shipped(), *schemas))
        before = self._rows, self._fingerprint
        try:
            with self._transaction(durable=True):
                evolve(self._connection, schema, kept=frozenset(ours.tables))
                tables = tables_of(self._connection)
                self._rows = {name: TableRows(self._connection, table) for name, table in tables.items()}
                self._fingerprint = fingerprint(tables)
                return self._place_unknown()
        except BaseException:
            self._rows, self._fingerprint = before
            raise

    def _place_unknown(self) -> int:
        batch = BatchApplier(self._parts(), self._clock.now())
        placed = 0
        for stream in [*self._origins.all()]:
            for kept in [*self._unknown.of(stream.number)]:
                rows = self._rows.get(kept.op.table)
                if rows is not None and rows.knows(kept.op.columns):
                    self._unknown.clear(stream.number, kept.op)
                    rows.unnote(kept.op.key)
                    batch.place(stream, kept.version, kept.op)
                    placed += 1
        return placed

    # What this node says.

    def proven(self) -> bool:
        return self._proven

    def commit(self, statements: Sequence[Statement], at: float, *, timeout_s: float | None = None) -> Committed:
        (result,) = self.commit_all([LocalTransaction(statements=tuple(statements), at=at, timeout_s=timeout_s)])
        if isinstance(result, HawkerError):
            raise result
        return result

    def commit_all(self, group: Sequence[LocalTransaction]) -> Sequence[Committed | HawkerError]:
        if not self._proven:
            raise Unavailable("the catalog is finding out what this node has published before; try again in a moment")
        commits = Commits(self._connection, self._parts(), self._freshness, self._statements, self._clock.now())
        while True:
            with suppress(TransactionLost), self._transaction(durable=True):
                return commits.run(group)

    def renew(self, scope: Scope, epoch: int) -> Position:
        """Begins this node's stream anew in that epoch or, if this node is known to have used it, in a later one."""
        with self._transaction(durable=True):
            stream = self._origins.get(self._node, scope)
            epoch = max(
                epoch, stream.epoch + 1 if stream.begun else 0, stream.fence + 1, self._freshness.epoch(scope) + 1
            )
            run, count = stream.run + 1, 0
            self._counter = itertools.count(ROWS_PER_VERSION)
            for rows in self._rows.values():
                if rows.table.scope is scope:
                    rows.renumber(self._node, run)
                    count += rows.count(self._node)
            applied = -(-count // ROWS_PER_VERSION)
            stream = msgspec.structs.replace(
                stream, epoch=epoch, applied=applied, floor=applied, run=run, came=RESETTING
            )
            self._log.drop(stream.number)
            self._origins.put(stream)
            if self._proven:
                self._freshness.cover(scope, stream.position)
        self._renewed.add(scope)
        if not self._proven and self._renewed.issuperset(Scope):
            try:
                self._begin_proof()
            except OSError as error:
                raise Unavailable(f"the catalog cannot be written now: {error}") from error
        return stream.position

    def _next_version(self, *_: Value) -> int:
        return next(self._counter) // ROWS_PER_VERSION

    def _prove(self) -> bool:
        run = self._connection.execute("SELECT run FROM __c_lease").get or ""
        positions = self._own_positions()
        fenced = any(position.epoch <= position.fence for position in positions.values())
        if fenced or not self._freshness.proves(run, positions):
            return False
        try:
            self._begin_proof(previous=run)
        except (OSError, Unavailable) as error:  # a node begins on a full disk, too: a new epoch is always right
            _log.warning("the catalog's proof cannot be written", extra={"reason": str(error)})
            return False
        return True

    def _begin_proof(self, previous: str = "") -> None:
        run = self._clock.token_bytes(16).hex()
        self._freshness.begin(run, previous, self._own_positions())
        with self._transaction(durable=True):
            self._connection.execute("INSERT OR REPLACE INTO __c_lease VALUES (1, ?)", (run,))
        self._freshness.settle()
        self._proven = True

    def _own_positions(self) -> Mapping[Scope, Position]:
        return {scope: self._own_position(scope) for scope in Scope}

    def _own_position(self, scope: Scope) -> Position:
        stream = self._origins.find(self._node, scope)
        return stream.position if stream else Position()

    # What others say.

    def positions(self, scope: Scope) -> Mapping[NodeId, Position]:
        with self._lock:
            return {self._node: Position(), **self._origins.positions(scope)}

    def apply(self, batch: Sequence[ReplicatedTx | Delta]) -> ApplyOutcome:
        with self._transaction(durable=False):
            outcome = BatchApplier(self._parts(), self._clock.now()).run(batch)
        if outcome.quarantined:
            with suppress(Unavailable):  # it is applied in any case
                _log.warning("bad rows set aside", extra={"rows": outcome.quarantined, "last": self.quarantined(1)})
        return outcome

    def replay(self, origin: NodeId, scope: Scope, after: int, max_bytes: int) -> Sequence[ReplicatedTx]:
        with self._reading():
            stream = self._origins.find(origin, scope)
            return () if stream is None else self._log.replay(stream.number, after, max_bytes)

    def delta(self, origin: NodeId, scope: Scope, after: int, max_bytes: int, *, since: int = -1) -> Delta:
        with self._reading():
            stream = self._origins.find(origin, scope) or StreamState(number=0, origin=origin, scope=scope)
            return snapshot_install.delta(
                stream, self._rows, (self._unknown, self._quarantine), after, max_bytes, since
            )

    def fence(self, origin: NodeId, epoch: int) -> None:
        with self._transaction(durable=True):
            for scope in Scope:
                self._fence(self._origins.get(origin, scope), epoch)

    def _fence(self, stream: StreamState, epoch: int) -> None:
        fenced = msgspec.structs.replace(stream, fence=max(stream.fence, epoch))
        if stream.origin == self._node:  # its own rows stay; it has to say them again in a later epoch
            if stream.epoch <= fenced.fence:
                self._proven = False
                self._renewed.discard(stream.scope)
        elif stream.epoch <= fenced.fence:
            self._wipe(stream)
            fenced = msgspec.structs.replace(fenced, epoch=0, applied=0, floor=0, run=stream.run + 1, came=RESETTING)
        self._origins.put(fenced)

    def _wipe(self, stream: StreamState) -> None:
        for rows in self._rows.values():
            if rows.table.scope is stream.scope:
                rows.drop(stream.origin)
        self._unknown.drop(stream.number)
        self._quarantine.drop(stream.number)
        self._log.drop(stream.number)

    def collect(self, before: float) -> int:
        floors: dict[tuple[NodeId, Scope], int] = {}
        count = 0
        with self._transaction(durable=False):
            for rows in self._rows.values():
                for owner, version, gone in rows.collect(before):
                    place = (NodeId(owner), rows.table.scope)
                    floors[place] = max(version, floors.get(place, 0))
                    count += gone
            numbers = {stream.number: (stream.origin, stream.scope) for stream in self._origins.all()}
            for quarantine in (self._unknown, self._quarantine):
                for number, version in quarantine.collect(before).items():
                    floors[numbers[number]] = max(version, floors.get(numbers[number], 0))
            for place, version in floors.items():
                stream = self._origins.get(*place)
                self._origins.put(msgspec.structs.replace(stream, floor=max(stream.floor, version)))
            self._log.trim(max(before, self._clock.now() - LOG_AGE_S))
        with self._lock:
            self._database.relax()
        return count

    # All streams at once.

    def snapshot(self, target: Path, scopes: Collection[Scope] = frozenset(Scope)) -> CatalogSnapshot:
        """May be called in any thread, and holds up nothing. The file is there until the snapshot is closed."""
        return make(self._path, target, scopes)

    def install(self, file: Path, digest: str) -> Touched:
        """Take what a snapshot knows more. Blocks for long: call it in a thread; between two streams others go on.
        Raises `SnapshotRefused`, `OSError` when the disk does not take it."""
        with opened(file, digest, self._installing) as draft:
            with self._lock:
                self._connection.execute("ATTACH ? AS draft", (f"file:{quote(str(draft.path))}?mode=ro",))
            try:
                for theirs in draft.streams:
                    self._take(draft, theirs)
            finally:
                with self._lock:
                    self._connection.execute("DETACH draft")
        return Touched(tables={}, everything=True)

    def _take(self, draft: Draft, theirs: StreamState) -> None:
        with self._transaction(durable=False):
            ours = self._origins.find(theirs.origin, theirs.scope)
            if theirs.origin != self._node and is_further(theirs, ours):
                take(self._connection, draft, self._parts(), theirs, self._clock.now())

    # Beside the streams.

    def set_members(self, members: Sequence[MemberRow]) -> None:
        """Writes the members that gossip knows now, all of them; this table is of this node alone."""
        with self._transaction(durable=False):
            self._connection.execute("DELETE FROM __corro_members")
            rows = (msgspec.structs.astuple(member) for member in members)
            self._connection.executemany("INSERT INTO __corro_members VALUES (?, ?, ?, ?, ?)", rows)

    def quarantined(self, limit: int = 100) -> Sequence[tuple[NodeId, str, str]]:
        """Bad rows: whose, of which table, and what is wrong with each; the latest first."""
        text = """SELECT o.origin, q.tbl, q.reason FROM __c_quarantine q JOIN __c_origin o ON o.number = q.stream
            ORDER BY q.at DESC LIMIT ?"""
        with self._reading():
            rows: list[Any] = self._connection.execute(text, (limit,)).fetchall()
            return rows

    def query(self, statement: Statement) -> ResultTable:
        with self._lock:
            if self._reader is None:
                self._reader = ReadConnection(self._path, self._clock)
            answer = self._reader.start(statement)
            rows = self._reader.take(answer, rows=QUERY_ROWS, size_bytes=QUERY_BYTES)
            more = self._reader.take(answer, rows=1, size_bytes=1)
            answer.close()
            if more:
                raise BadRequest(f"the answer has more than {len(rows)} rows, or is too large: narrow it")
            return ResultTable(columns=answer.columns, rows=tuple(rows))

    def close(self) -> None:
        with self._lock:
            if self._reader is not None:
                self._reader.close()
            try:
                if self._proven:
                    self._freshness.end(self._own_positions())
            except OSError as error:
                _log.warning("the catalog is not closed in good order", extra={"reason": str(error)})
            finally:
                self._database.close()

    # The transaction.

    @contextmanager
    def _transaction(self, *, durable: bool) -> Iterator[None]:
        """What is kept in memory beside the file changes with the file or not at all."""
        with self._lock:
            try:
                with self._database.transaction(durable=durable):
                    self._reload()
                    yield
                    self._origins.write()
            except BaseException as error:
                self._origins.after_rollback()
                self._outdated = True
                if isinstance(error, apsw.Error | OSError):
                    raise Unavailable(f"the catalog cannot be written now: {error}") from error
                raise
            self._origins.after_commit()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock:
            try:
                self._reload()
                yield
            except (apsw.Error, OSError) as error:
                raise Unavailable(f"the catalog cannot be read now: {error}") from error

    def _reload(self) -> None:
        """What a transaction that failed has left in memory; a disk that fails may not even be read right after it."""
        if self._outdated:
            for part in (self._log, self._unknown, self._quarantine):
                part.load()
            self._outdated = False

    def _parts(self) -> StorageParts:
        return StorageParts(
            node=self._node,
            rows=self._rows,
            origins=self._origins,
            log=self._log,
            unknown=self._unknown,
            quarantine=self._quarantine,
        )
