"""A storage in memory that keeps the promises of `contract.Storage`: for the fuzz, simulations and tests. It knows two
statements, as `upsert` and `remove` make them, and takes a row for what the table's columns say.

`image` is all that a disk would keep. A real storage is storage.py; one suite of tests holds both to the contract.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy

from hawker.catalog.change import Delta, Op, Position, ReplicatedTx, Scope, Token, Value, VersionedOp
from hawker.catalog.contract import ApplyOutcome, Committed, Effect, LocalTransaction, ResultTable, Statement, Touched
from hawker.catalog.messages import size_of
from hawker.clock import Clock
from hawker.errors import BadRequest, HawkerError
from hawker.ids import NodeId

Key = tuple[str, tuple[Value, ...]]
ROWS_A_VERSION = 256


class MemoryTable:
    """The columns of one table: its scope, the columns of its key and the others."""

    __slots__ = ("columns", "key", "scope")

    def __init__(self, scope: Scope, key: tuple[str, ...], columns: tuple[str, ...]) -> None:
        self.scope, self.key, self.columns = scope, key, columns


Schema = Mapping[str, MemoryTable]


class StoredStream:
    """One origin's rows in one scope: each with its last version, op and when that came."""

    def __init__(self) -> None:
        self.position = Position()
        self.rows: dict[Key, tuple[int, Op, float]] = {}
        self.log: list[tuple[ReplicatedTx, float]] = []
        self.sweep: set[Key] | None = None  # what a reset that is under way has not named yet
        self.came_to = -1

    def at(self, **changes: int) -> None:
        now = self.position
        values = {"epoch": now.epoch, "applied": now.applied, "floor": now.floor, "fence": now.fence} | changes
        self.position = Position(**values)


class DiskImage:
    """The image of what is on disk."""

    def __init__(self) -> None:
        self.streams: dict[tuple[NodeId, Scope], StoredStream] = {}
        self.renewed: set[Scope] = set()
        self.whole = False

    def copy(self) -> "DiskImage":
        return deepcopy(self)


class MemoryStorage:
    """`refuses` tells rows that do not fit their table, which are quarantined."""

    def __init__(
        self,
        me: NodeId,
        schema: Schema,
        clock: Clock,
        *,
        image: DiskImage | None = None,
        refuses: Callable[[Op], bool] = lambda op: False,
        log_txs: int = 1000,
    ) -> None:
        self._me, self._schema, self._clock = me, schema, clock
        self._refuses, self._log_txs = refuses, log_txs
        self.image = image if image is not None else DiskImage()
        self._proven = {scope for scope in Scope if self.image.whole}
        self.image.whole = False
        for stream in self.image.streams.values():
            stream.sweep, stream.came_to = None, -1

    def proven(self) -> bool:
        return len(self._proven) == len(Scope)

    def positions(self, scope: Scope) -> Mapping[NodeId, Position]:
        found = {origin: stream.position for (origin, each), stream in self.image.streams.items() if each is scope}
        return {self._me: Position()} | found

    def apply(self, batch: Sequence[ReplicatedTx | Delta]) -> ApplyOutcome:
        keys: set[Key] = set()
        aside = 0
        for item in batch:
            stream = self._stream(item.origin, item.scope)
            changed = (
                self._apply_tx(stream, item) if isinstance(item, ReplicatedTx) else self._apply_delta(stream, item)
            )
            keys.update(key for key, _ in changed)
            aside += sum(1 for _, op in changed if op is not None and not self._has_place(op, item.origin))
        positions = {(item.origin, item.scope): self._stream(item.origin, item.scope).position for item in batch}
        return ApplyOutcome(positions=positions, unknown=aside, touched=touched(keys))

    def replay(self, origin: NodeId, scope: Scope, after: int, max_bytes: int) -> Sequence[ReplicatedTx]:
        stream = self._stream(origin, scope)
        found: list[ReplicatedTx] = []
        for tx, _ in stream.log:
            if tx.epoch == stream.position.epoch and tx.version == after + 1 + len(found) and max_bytes > 0:
                found.append(tx)
                max_bytes -= size_of(tx)
        return found

    def delta(self, origin: NodeId, scope: Scope, after: int, max_bytes: int, *, since: int = -1) -> Delta:
        stream = self._stream(origin, scope)
        position = stream.position
        goes_on = since >= 0 and position.floor <= since
        reset = since >= 0 or after < 0 or self._lacks_deletions(position, after)
        first = after if goes_on or not reset else -1
        found = sorted((row for row in self._served(stream) if row[0] > first), key=lambda row: row[0])
        ops: list[VersionedOp] = []
        for version, op in found:
            if max_bytes <= 0 and ops[-1].version != version:
                break
            ops.append(VersionedOp(version, op))
            max_bytes -= len(op.key) * 8 + len(op.row or ()) * 16
        last = len(ops) == len(found)
        upto = position.applied if last else ops[-1].version
        return Delta(
            origin, scope, position.epoch, reset, first, upto, position.floor, tuple(ops), last, position.applied
        )

    def fence(self, origin: NodeId, epoch: int) -> None:
        for scope in Scope:
            stream = self._stream(origin, scope)
            if stream.position.epoch <= epoch and origin != self._me:
                fence = stream.position.fence
                stream = self.image.streams[origin, scope] = StoredStream()
                stream.at(fence=fence)
            stream.at(fence=max(epoch, stream.position.fence))

    def commit(self, statements: Sequence[Statement], at: float, *, timeout_s: float | None = None) -> Committed:
        changes: dict[Scope, dict[Key, Op]] = {}
        effects: list[Effect] = []
        for statement in statements:
            op = self._parse(statement)
            scope = self._schema[op.table].scope
            before = changes.get(scope, {}).get((op.table, op.key)) or self._live(scope, (op.table, op.key))
            is_news = (before.row if before is not None else None) != op.row
            if is_news:
                changes.setdefault(scope, {})[op.table, op.key] = op
            effects.append(Effect(rows_affected=int(is_news), seconds=0.0))
        txs = [self._append(scope, tuple(ops.values()), at) for scope, ops in sorted(changes.items())]
        token = next((tx for tx in txs if tx.scope is Scope.REGION), txs[0] if txs else None)
        return Committed(
            effects=tuple(effects),
            txs=tuple(txs),
            token=Token(origin=token.origin, epoch=token.epoch, version=token.version) if token is not None else None,
        )

    def commit_all(self, group: Sequence[LocalTransaction]) -> Sequence[Committed | HawkerError]:
        return [self._try(local) for local in group]

    def _try(self, local: LocalTransaction) -> Committed | HawkerError:
        try:
            return self.commit(local.statements, local.at, timeout_s=local.timeout_s)
        except HawkerError as error:
            return error

    def renew(self, scope: Scope, epoch: int) -> Position:
        stream = self._stream(self._me, scope)
        live = [(key, op, at) for key, (_, op, at) in stream.rows.items() if op.row is not None]
        stream.log.clear()
        stream.rows = {key: (1 + number // ROWS_A_VERSION, op, at) for number, (key, op, at) in enumerate(live)}
        upto = -(-len(live) // ROWS_A_VERSION)
        stream.at(epoch=epoch, applied=upto, floor=upto)
        self._proven.add(scope)
        return stream.position

    def collect(self, before: float) -> int:
        gone = 0
        for stream in self.image.streams.values():
            old = {key: row for key, row in stream.rows.items() if row[1].row is None and row[2] < before}
            for key in old:
                del stream.rows[key]
            stream.log = [(tx, at) for tx, at in stream.log if at >= before]
            gone += len(old)
            stream.at(floor=max([stream.position.floor, *(version for version, _, _ in old.values())]))
        return gone

    def query(self, statement: Statement) -> ResultTable:
        """`SELECT * FROM table`, and nothing else."""
        table = statement.query.rpartition(" ")[2]
        if table not in self._schema or statement.query != f"SELECT * FROM {table}":
            raise BadRequest(f"the storage in memory reads whole tables only, not {statement.query!r}")
        layout = self._schema[table]
        rows = sorted((key[1] + row for key, row in self.rows().items() if key[0] == table), key=repr)
        return ResultTable(columns=layout.key + layout.columns, rows=tuple(rows))

    def close(self) -> None:
        self.image.whole = self.proven()

    # for the fuzz

    def rows(self, origin: NodeId | None = None) -> dict[Key, tuple[Value, ...]]:
        """The rows that a reader sees, of one origin or of all."""
        found: dict[Key, tuple[Value, ...]] = {}
        for (owner, _), stream in self.image.streams.items():
            if origin in (None, owner):
                for key, (_, op, _) in stream.rows.items():
                    row = self._project(op, owner)
                    if row is not None:
                        found[key] = row
        return found

    def _stream(self, origin: NodeId, scope: Scope) -> StoredStream:
        return self.image.streams.setdefault((origin, scope), StoredStream())

    def _live(self, scope: Scope, key: Key) -> Op | None:
        found = self._stream(self._me, scope).rows.get(key)
        return found[1] if found is not None else None

    def _append(self, scope: Scope, ops: tuple[Op, ...], at: float) -> ReplicatedTx:
        stream = self._stream(self._me, scope)
        tx = ReplicatedTx(self._me, scope, stream.position.epoch, stream.position.applied + 1, at, ops)
        self._write(stream, tx)
        return tx

    def _comes_next(self, position: Position, tx: ReplicatedTx) -> bool:
        unheard = (position.epoch, position.applied) == (0, 0) and tx.version == 1
        is_next = position.applied >= 0 and tx.epoch == position.epoch and tx.version == position.applied + 1
        return unheard or is_next

    def _apply_tx(self, stream: StoredStream, tx: ReplicatedTx) -> list[tuple[Key, Op | None]]:
        if self._barred(stream.position, tx.epoch) or not self._comes_next(stream.position, tx):
            return []
        self._write(stream, tx)
        return [((op.table, op.key), op) for op in tx.ops]

    def _write(self, stream: StoredStream, tx: ReplicatedTx) -> None:
        now = self._clock.now()
        for op in tx.ops:
            stream.rows[op.table, op.key] = (tx.version, op, now)
        stream.log.append((tx, now))
        del stream.log[: -self._log_txs]
        stream.at(epoch=tx.epoch, applied=tx.version)

    def _apply_delta(self, stream: StoredStream, delta: Delta) -> list[tuple[Key, Op | None]]:
        if self._barred(stream.position, delta.epoch) or not self._fits(stream, delta):
            return []
        if delta.reset and delta.after < 0:
            stream.sweep = set(stream.rows)
            stream.log.clear()
            stream.at(epoch=delta.epoch, applied=-1, floor=delta.floor)
        changed: list[tuple[Key, Op | None]] = []
        now = self._clock.now()
        for each in delta.ops:
            key = (each.op.table, each.op.key)
            stream.rows[key] = (each.version, each.op, now)
            changed.append((key, each.op))
            if stream.sweep is not None:
                stream.sweep.discard(key)
        stream.came_to = delta.upto
        if not delta.reset:
            stream.log.clear()
            stream.at(applied=delta.upto)
        elif delta.last:
            changed.extend((key, None) for key in self._swept(stream))
            stream.at(applied=delta.upto, floor=max(delta.floor, stream.position.floor))
        return changed

    def _swept(self, stream: StoredStream) -> Iterator[Key]:
        for key in stream.sweep or ():
            del stream.rows[key]
            yield key
        stream.sweep = None

    def _fits(self, stream: StoredStream, delta: Delta) -> bool:
        epoch, applied = stream.position.epoch, stream.position.applied
        if not delta.reset:
            return delta.epoch == epoch and 0 <= delta.after <= applied < delta.upto
        if delta.after >= 0:
            return delta.epoch == epoch and stream.sweep is not None and stream.came_to == delta.after
        further = applied < 0 or delta.head > applied
        return delta.epoch > epoch or (delta.epoch == epoch and further)

    def _lacks_deletions(self, position: Position, after: int) -> bool:
        """Whether deletions behind that version were collected."""
        return after < position.floor

    def _barred(self, position: Position, epoch: int) -> bool:
        return epoch <= position.fence

    def _served(self, stream: StoredStream) -> Iterator[tuple[int, Op]]:
        for version, op, _ in stream.rows.values():
            yield version, op

    def _project(self, op: Op, owner: NodeId | None) -> tuple[Value, ...] | None:
        """The row as this node's tables have it; None for a deletion and for what is set aside. Of a row that has a
        column more, the rest is there."""
        layout = self._schema.get(op.table)
        if layout is None or op.row is None or self._refuses(op):
            return None
        if owner is not None and (not op.key or op.key[0] != owner):
            return None
        values = dict(zip(op.columns, op.row, strict=False))
        return tuple(values.get(column) for column in layout.columns)

    def _has_place(self, op: Op, owner: NodeId | None) -> bool:
        if op.row is None:
            return True
        layout = self._schema.get(op.table)
        return layout is not None and set(op.columns) <= set(layout.columns) and self._project(op, owner) is not None

    def _parse(self, statement: Statement) -> Op:
        if found := _UPSERT.fullmatch(statement.query):
            columns = tuple(found[2].split(", "))
        elif found := _REMOVE.fullmatch(statement.query):
            columns = tuple(part.removesuffix(" = ?") for part in found[2].split(" AND "))
        layout = self._schema.get(found[1]) if found else None
        if found is None or layout is None or len(columns) != len(statement.params):
            raise BadRequest(f"the storage in memory cannot run {statement.query!r}")
        values = dict(zip(columns, statement.params, strict=True))
        key = tuple(values.pop(column, None) for column in layout.key)
        if key[0] != self._me:
            raise BadRequest(f"the row {key} of {found[1]} is another node's")
        if found.re is _REMOVE:
            return Op(found[1], key)
        return Op(found[1], key, layout.columns, tuple(values.get(column) for column in layout.columns))


_UPSERT = re.compile(r"INSERT OR REPLACE INTO (\w+) \(([\w, ]+)\) VALUES \([?, ]+\)")
_REMOVE = re.compile(r"DELETE FROM (\w+) WHERE ([\w =?]+)")


def upsert(table: str, row: Mapping[str, Value]) -> Statement:
    marks = ", ".join("?" * len(row))
    return Statement(
        query=f"INSERT OR REPLACE INTO {table} ({', '.join(row)}) VALUES ({marks})", params=tuple(row.values())
    )


def remove(table: str, key: Mapping[str, Value]) -> Statement:
    where = " AND ".join(f"{column} = ?" for column in key)
    return Statement(query=f"DELETE FROM {table} WHERE {where}", params=tuple(key.values()))


def touched(keys: set[Key]) -> Touched:
    tables: dict[str, set[tuple[Value, ...]]] = {}
    for table, key in keys:
        tables.setdefault(table, set()).add(key)
    return Touched(tables={table: frozenset(found) for table, found in tables.items()})
