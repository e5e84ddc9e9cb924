"""Local transactions: run, captured, published. Several that wait are one transaction of the database, each in a
savepoint of its own, so that they share what takes longest: the wait for the disk.

Proof of freshness: a small file beside the database says up to which version the node may have published. It is written
ahead: a database that is a copy, was rolled back, or lost its end when the host went down, is so found out.
"""

import os
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import apsw
import msgspec

from hawker.catalog.apply import StorageParts
from hawker.catalog.capture import Capture, StatementFailed, Statements
from hawker.catalog.change import Op, Position, ReplicatedTx, Scope, Token
from hawker.catalog.contract import Committed, Effect, LocalTransaction
from hawker.errors import HawkerError

STEP = 256  # versions per promise
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class VersionCeiling(msgspec.Struct, frozen=True, kw_only=True):
    """The number of versions of `epoch` that this node may have published: at most `ceiling`, and at least `ceiling -
    STEP`; in a clean file exactly `ceiling`."""

    epoch: int
    ceiling: int


class FreshnessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The file's content. `run` is named anew each time the node begins, in the database too; `previous` is good until
    the database has the new name. Once it is `clean`, the ceilings are the very last versions."""

    run: str
    previous: str
    boot: str
    """The host's boot in which this was written: what was not synced is there as long as it lasts."""
    clean: bool
    promises: Mapping[Scope, VersionCeiling]


class FreshnessFile:
    def __init__(self, file: Path, boot: str) -> None:
        self._file, self._boot = file, boot
        self.record = _load(file)

    def proves(self, run: str, positions: Mapping[Scope, Position]) -> bool:
        """Whether the database, with its run and its node's positions, is what the file tells of."""
        record = self.record
        if record is None or not run or run not in (record.run, record.previous):
            return False
        if not record.clean and (record.boot != self._boot or not self._boot):
            return False
        return all(_keeps(record, scope, position) for scope, position in positions.items())

    def epoch(self, scope: Scope) -> int:
        """The last that the file knows; -1 for none."""
        promise = self.record.promises.get(scope) if self.record else None
        return promise.epoch if promise else -1

    def begin(self, run: str, previous: str, positions: Mapping[Scope, Position]) -> None:
        promises = {scope: _ahead(position) for scope, position in positions.items()}
        self._write(FreshnessRecord(run=run, previous=previous, boot=self._boot, clean=False, promises=promises))

    def settle(self) -> None:
        """The database has the run's name, on disk."""
        if self.record is not None:
            self._write(msgspec.structs.replace(self.record, previous=""))

    def cover(self, scope: Scope, position: Position) -> None:
        """Writes the promise of a version, before that version can be seen by anyone."""
        assert self.record is not None, "nothing is published before the lease began"
        promise = self.record.promises.get(scope)
        if promise is None or promise.epoch != position.epoch or position.applied > promise.ceiling:
            promises = {**self.record.promises, scope: _ahead(position, behind=1)}
            self._write(msgspec.structs.replace(self.record, promises=promises))

    def end(self, positions: Mapping[Scope, Position]) -> None:
        """The node closes its database in good order."""
        if self.record is not None:
            promises = {scope: VersionCeiling(epoch=at.epoch, ceiling=at.applied) for scope, at in positions.items()}
            self._write(msgspec.structs.replace(self.record, clean=True, promises=promises))

    def _write(self, record: FreshnessRecord) -> None:
        """On disk when this returns; the old one or the new one after a crash."""
        draft = self._file.with_name(f"{self._file.name}.new")
        with draft.open("wb") as file:
            file.write(msgspec.json.encode(record))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._file)
        folder = os.open(self._file.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self.record = record


def boot_id() -> str:
    """A name for the time since the host's kernel began; empty where that cannot be told."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _ahead(position: Position, behind: int = 0) -> VersionCeiling:
    return VersionCeiling(epoch=position.epoch, ceiling=position.applied - behind + STEP)


def _keeps(record: FreshnessRecord, scope: Scope, position: Position) -> bool:
    promise = record.promises.get(scope)
    if promise is None or promise.epoch != position.epoch:
        return False
    lowest = promise.ceiling if record.clean else promise.ceiling - STEP
    return lowest <= position.applied <= promise.ceiling


def _load(file: Path) -> FreshnessRecord | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=FreshnessRecord)
    except (OSError, msgspec.DecodeError):
        return None


class TransactionLost(Exception):
    """SQLite has rolled back all of it, as it does when a statement is interrupted. To be run again; `number` will
    not take part any more."""


class Commits:
    """The commits of one group, which may have to be run more than once. They run inside the caller's transaction."""

    def __init__(
        self,
        connection: apsw.Connection,
        parts: StorageParts,
        freshness: FreshnessFile,
        statements: Statements,
        now: float,
    ) -> None:
        self._connection, self._parts, self._freshness = connection, parts, freshness
        self._statements, self._now = statements, now
        self._failed: dict[int, HawkerError] = {}

    def run(self, group: Sequence[LocalTransaction]) -> list[Committed | HawkerError]:
        """The result of each transaction of the group, in its order. Raises `TransactionLost`."""
        return [self._failed.get(number) or self._attempt(number, local) for number, local in enumerate(group)]

    def _attempt(self, number: int, local: LocalTransaction) -> Committed | HawkerError:
        self._connection.execute("SAVEPOINT local")
        try:
            committed = self._commit(local)
        except HawkerError as error:
            self._failed[number] = error
            if not self._connection.in_transaction:
                raise TransactionLost from error
            self._connection.execute("ROLLBACK TO local")
            self._connection.execute("RELEASE local")
            return error
        self._connection.execute("RELEASE local")
        return committed

    def _commit(self, local: LocalTransaction) -> Committed:
        if not local.statements:
            raise StatementFailed("at least 1 statement is required")
        rows = self._parts.rows
        capture = Capture(self._connection, self._parts.node, rows)
        with capture.watching():
            effects = self._statements.run(local.statements, rows, local.timeout_s)
        return _committed(effects, self._publish(capture.ops, local.at))

    def _publish(self, changed: Mapping[Scope, Sequence[Op]], at: float) -> tuple[ReplicatedTx, ...]:
        return tuple(self._say(scope, changed[scope], at) for scope in Scope if scope in changed)

    def _say(self, scope: Scope, ops: Sequence[Op], at: float) -> ReplicatedTx:
        parts = self._parts
        stream = parts.origins.get(parts.node, scope)
        tx = ReplicatedTx(parts.node, scope, stream.epoch, stream.applied + 1, at, tuple(ops))
        died = max(1, int(self._now))
        for table, of_table in groupby(ops, key=lambda op: op.table):
            parts.rows[table].note_all(of_table, tx.version, stream.run, died)
        parts.log.add(stream.number, tx, self._now)
        stream = parts.origins.put(msgspec.structs.replace(stream, applied=tx.version))
        self._freshness.cover(scope, stream.position)
        return tx


def _committed(effects: tuple[Effect, ...], txs: tuple[ReplicatedTx, ...]) -> Committed:
    token = None
    if txs:
        named = next((tx for tx in txs if tx.scope is Scope.REGION), txs[0])
        token = Token(origin=named.origin, epoch=named.epoch, version=named.version)
    return Committed(effects=effects, txs=txs, token=token)
