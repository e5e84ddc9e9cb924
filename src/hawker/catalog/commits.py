"""Local transactions: run, captured, published. Several that wait are one transaction of the database, each in a
savepoint of its own, so that they share what takes longest: the wait for the disk.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

import apsw
import msgspec

from hawker.catalog.apply import StorageParts
from hawker.catalog.capture import Capture, StatementFailed, Statements
from hawker.catalog.change import Op, ReplicatedTx, Scope, Token
from hawker.catalog.contract import Committed, Effect, LocalTransaction
from hawker.catalog.freshness import FreshnessFile
from hawker.errors import HawkerError


class TransactionLost(Exception):
    """SQLite has rolled back all of it, as it does when a statement is interrupted. To be run again; `number` will
    not take part any more."""


class Commits:
    """Of one group, which may have to be run more than once. Inside the caller's transaction."""

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
        """For each what it came to. Raises `TransactionLost`."""
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
