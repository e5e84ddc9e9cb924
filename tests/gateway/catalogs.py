"""Catalogs of several nodes, as files, for what reads them: real ones, joined by hand."""

from collections.abc import Sequence
from pathlib import Path

from hawker.catalog.change import ReplicatedTx, Scope, Value
from hawker.catalog.contract import Statement
from hawker.catalog.storage import MemberRow, SqliteStorage
from hawker.clock import Clock
from hawker.ids import NodeId

A, B, C = (NodeId(f"{number:08x}") for number in (1, 2, 3))


class Files:
    """The catalogs of nodes below a directory. What a node commits waits until it is `told` to another one."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._storages: dict[NodeId, SqliteStorage] = {}
        self._waiting: list[ReplicatedTx] = []

    def path(self, node: NodeId) -> Path:
        return self._directory / f"{node}.db"

    def of(self, node: NodeId) -> SqliteStorage:
        if node not in self._storages:
            made = SqliteStorage(self.path(node), node, self._clock, boot=lambda: "boot")
            for number, scope in enumerate(Scope, 1):
                made.renew(scope, number)
            self._storages[node] = made
        return self._storages[node]

    def row(self, table: str, node: NodeId, **values: Value) -> str:
        """Commits it at its owner; where it can then be read."""
        names = ("node", *values)
        query = f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        done = self.of(node).commit([Statement(query=query, params=(node, *values.values()))], 0.0)
        self._waiting += done.txs
        assert done.token is not None
        return str(done.token)

    def node(self, node: NodeId, region: str, **values: Value) -> str:
        return self.row("nodes", node, region=region, api=f"http://{node}", **values)

    def tell(self, reader: NodeId) -> None:
        """All that was committed anywhere."""
        waiting, self._waiting = self._waiting, []
        for tx in waiting:
            if tx.origin != reader:
                self.of(reader).apply([tx])

    def members(self, reader: NodeId, states: Sequence[tuple[NodeId, str]]) -> None:
        self.of(reader).set_members([MemberRow(host=node, state=state, since=0.0) for node, state in states])

    def close(self) -> None:
        for storage in self._storages.values():
            storage.close()
