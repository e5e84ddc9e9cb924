"""A stream as what its rows are now: the last op of each row that changed beyond a version, by version."""

import heapq
from collections.abc import Iterable, Iterator, Mapping

from hawker.catalog.capture import op_size
from hawker.catalog.change import Delta, VersionedOp
from hawker.catalog.quarantine import QuarantineTable, key_of
from hawker.catalog.rows import TableRows
from hawker.catalog.streams import RESETTING, StreamState


def delta(
    stream: StreamState,
    rows: Mapping[str, TableRows],
    quarantines: Iterable[QuarantineTable],
    after: int,
    max_bytes: int,
    since: int,
) -> Delta:
    """See `contract.Storage.delta`."""
    if not stream.begun or stream.applied == RESETTING or after > stream.applied:
        return _nothing(stream, after)
    reset = after < max(stream.floor, 0) or since >= 0
    if reset and (since < 0 or stream.floor > since):
        after = RESETTING
    ops, upto = _part(changes(stream, rows, quarantines, after), max_bytes)
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


def changes(
    stream: StreamState, rows: Mapping[str, TableRows], quarantines: Iterable[QuarantineTable], after: int
) -> Iterator[VersionedOp]:
    """What was set aside takes the place of what the tables have of that row."""
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
