"""Applies what other nodes say to the replica: one batch, one transaction, whatever is in it. Which of it fits is
decided by the position of its stream alone; a row that cannot be placed is set aside and holds up nothing.
"""

from collections.abc import Mapping, Sequence

import apsw
import msgspec

from hawker.catalog.capture import is_too_large
from hawker.catalog.change import Delta, Op, ReplicatedTx
from hawker.catalog.contract import ApplyOutcome, Touched
from hawker.catalog.quarantine import QuarantineTable
from hawker.catalog.rows import Key, TableRows
from hawker.catalog.streams import RESETTING, ReplayLog, StreamPositions, StreamState
from hawker.ids import NodeId

TOUCHED_LIMIT = 20_000
_GREATEST = 1 << 62  # what epochs and versions are below
_BAD = (
    *(apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError, apsw.RangeError, apsw.SQLError, apsw.BindingsError),
    *(OverflowError, TypeError, ValueError),
)


class StorageParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the storage that a batch works on."""

    node: NodeId
    rows: Mapping[str, TableRows]
    origins: StreamPositions
    log: ReplayLog
    unknown: QuarantineTable
    quarantine: QuarantineTable


class TouchedKeys:
    """Collects the keys of rows that a reader now sees differently."""

    def __init__(self) -> None:
        self._tables: dict[str, set[Key]] = {}
        self._count = 0
        self.everything = False

    def add(self, table: str, key: Key) -> None:
        if self._count < TOUCHED_LIMIT:
            self._tables.setdefault(table, set()).add(key)
            self._count += 1
        else:
            self.everything = True

    def result(self) -> Touched:
        tables = {table: frozenset(keys) for table, keys in self._tables.items()}
        return Touched(tables=tables, everything=self.everything)


class BatchApplier:
    """Inside the caller's transaction."""

    def __init__(self, parts: StorageParts, now: float) -> None:
        self._parts, self._now = parts, now
        self._died = max(1, int(now))
        self._touch = TouchedKeys()
        self._unknown = self._quarantined = 0

    def run(self, batch: Sequence[ReplicatedTx | Delta]) -> ApplyOutcome:
        for item in batch:
            if item.origin != self._parts.node:
                self._delta(item) if isinstance(item, Delta) else self._tx(item)
        places = {(item.origin, item.scope) for item in batch}
        streams = {place: self._parts.origins.find(*place) for place in places}
        return ApplyOutcome(
            positions={place: stream.position for place, stream in streams.items() if stream is not None},
            unknown=self._unknown,
            quarantined=self._quarantined,
            touched=self._touch.result(),
        )

    def _tx(self, tx: ReplicatedTx) -> None:
        stream = self._parts.origins.find(tx.origin, tx.scope)
        if not is_next(stream, tx):
            return
        stream = stream or self._parts.origins.get(tx.origin, tx.scope)
        for op in tx.ops:
            self.place(stream, tx.version, op)
        self._parts.log.add(stream.number, tx, self._now)
        self._parts.origins.put(msgspec.structs.replace(stream, epoch=tx.epoch, applied=tx.version))

    def _delta(self, delta: Delta) -> None:
        stream = self._parts.origins.find(delta.origin, delta.scope)
        if not fits(stream, delta):
            return
        stream = stream or self._parts.origins.get(delta.origin, delta.scope)
        if delta.reset and delta.after == RESETTING:
            stream = self._begin(stream, delta)
        for versioned in delta.ops:
            if delta.after < versioned.version <= delta.upto:
                self.place(stream, versioned.version, versioned.op)
        if not delta.reset:
            stream = msgspec.structs.replace(stream, applied=delta.upto)
        else:
            stream = msgspec.structs.replace(stream, came=delta.upto, floor=max(stream.floor, delta.floor))
            stream = self._end(stream) if delta.last else stream
        self._parts.origins.put(stream)

    def _begin(self, stream: StreamState, delta: Delta) -> StreamState:
        self._parts.log.drop(stream.number)
        return msgspec.structs.replace(
            stream, epoch=delta.epoch, applied=RESETTING, floor=delta.floor, run=stream.run + 1, came=RESETTING
        )

    def _end(self, stream: StreamState) -> StreamState:
        for name, rows in self._parts.rows.items():
            if rows.table.scope is stream.scope:
                for key in rows.sweep(stream.origin, stream.run):
                    self._touch.add(name, key)
        for quarantine in (self._parts.unknown, self._parts.quarantine):
            quarantine.drop(stream.number, but_run=stream.run)
        return msgspec.structs.replace(stream, applied=stream.came, came=RESETTING)

    # One row.

    def place(self, stream: StreamState, version: int, op: Op) -> None:
        rows = self._parts.rows.get(op.table)
        if fault := self._fault(stream, rows, op):
            self._set_bad(stream, version, op, fault)
        elif rows is None:
            self._set_unknown(stream, version, op)
        else:
            try:
                self._put(stream, rows, version, op)
            except _BAD as error:
                self._set_bad(stream, version, op, str(error))

    def _fault(self, stream: StreamState, rows: TableRows | None, op: Op) -> str:
        if not op.key or op.key[0] != stream.origin:
            return "the key does not begin with the owner"
        if rows is not None and rows.table.scope is not stream.scope:
            return f"the table is of scope {rows.table.scope}"
        if rows is not None and len(op.key) != len(rows.table.key):
            return f"the key has {len(op.key)} parts, not {len(rows.table.key)}"
        if op.row is not None and len(op.row) != len(op.columns):
            return "not as many values as columns"
        if op.row is not None and is_too_large(op.key, op.row):
            return "the row is too large"
        return ""

    def _put(self, stream: StreamState, rows: TableRows, version: int, op: Op) -> None:
        if not rows.note(op.key, version, stream.run, 0 if op.row is not None else self._died):
            return
        self._clear(stream, op)
        self._touch.add(op.table, op.key)
        if op.row is None:
            rows.delete(op.key)
        elif rows.knows(op.columns):
            rows.put(op.key, op.columns, op.row)
        else:
            known = [(name, value) for name, value in zip(op.columns, op.row, strict=True) if rows.knows((name,))]
            rows.put(op.key, tuple(name for name, _ in known), [value for _, value in known])
            self._set_unknown(stream, version, op)

    def _clear(self, stream: StreamState, op: Op) -> None:
        self._parts.unknown.clear(stream.number, op)
        self._parts.quarantine.clear(stream.number, op)

    def _set_unknown(self, stream: StreamState, version: int, op: Op) -> None:
        self._unknown += 1
        self._parts.unknown.put(stream.number, version, stream.run, op, self._now)

    def _set_bad(self, stream: StreamState, version: int, op: Op, reason: str) -> None:
        self._quarantined += 1
        key = self._parts.quarantine.put(stream.number, version, stream.run, op, self._now)
        self._parts.quarantine.explain(stream.number, op.table, key, reason, self._now)


def is_next(stream: StreamState | None, tx: ReplicatedTx) -> bool:
    """Whether the transaction is the one that its stream waits for."""
    if not 0 <= tx.epoch < _GREATEST or not 0 < tx.version < _GREATEST:
        return False
    if stream is None or not stream.begun:
        return tx.version == 1 and (stream is None or tx.epoch > stream.fence)
    follows = tx.epoch == stream.epoch and tx.version == stream.applied + 1
    return follows and stream.applied != RESETTING and tx.epoch > stream.fence


def fits(stream: StreamState | None, delta: Delta) -> bool:
    """Whether a part of a delta goes on from where its stream is, or begins it anew."""
    if not 0 <= delta.epoch < _GREATEST or not delta.after <= delta.upto < _GREATEST or delta.after < RESETTING:
        return False
    if stream is None:
        return delta.reset and delta.after == RESETTING
    if delta.epoch < stream.epoch or delta.epoch <= stream.fence:
        return False
    newer = delta.epoch > stream.epoch or not stream.begun
    if not delta.reset:
        return not newer and delta.after <= stream.applied < delta.upto and stream.applied != RESETTING
    if delta.after == RESETTING:
        return newer or stream.applied == RESETTING or delta.head > stream.applied
    return not newer and stream.applied == RESETTING and delta.after == stream.came
