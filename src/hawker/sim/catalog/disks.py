"""What a simulated node's catalog is kept on: in memory, or a real SQLite file. Stopped, killed, put back to an earlier
time, or lost.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from hawker.catalog.change import Scope, Value
from hawker.catalog.contract import Statement, Storage
from hawker.catalog.memory_storage import DiskImage, MemoryStorage, MemoryTable, Schema
from hawker.catalog.storage import SqliteStorage
from hawker.clock import Clock
from hawker.ids import NodeId

Content = Mapping[str, frozenset[tuple[Value, ...]]]
"""By table, what one origin has in one scope; a table that the replica does not know is not in it."""

OLD: Schema = {
    "machines": MemoryTable(Scope.REGION, ("node", "id"), ("state",)),
    "nodes": MemoryTable(Scope.GLOBAL, ("node",), ("region",)),
}
NEW: Schema = {
    "machines": MemoryTable(Scope.REGION, ("node", "id"), ("state", "name")),
    "nodes": MemoryTable(Scope.GLOBAL, ("node",), ("region",)),
    "extras": MemoryTable(Scope.REGION, ("node", "id"), ("state",)),
}
EXTRAS = "CREATE TABLE extras (node TEXT NOT NULL, id TEXT NOT NULL, state TEXT, PRIMARY KEY (node, id)) WITHOUT ROWID;"


class CatalogDisk(Protocol):
    """A storage that is open, and what becomes of it. `open` follows each of the others."""

    @property
    def storage(self) -> Storage: ...

    def open(self, *, new: bool) -> None:
        """`new`: with the newer schema."""

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    def mark(self) -> None:
        """Remember how it is now, for `rewind`."""

    def rewind(self, *, whole: bool) -> None:
        """Puts the disk back to the mark; `whole`: with all that could prove that it is not."""

    def wipe(self) -> None: ...

    def content(self, origin: NodeId, scope: Scope) -> Content: ...

    def close(self) -> None: ...


class CatalogMemoryDisk:
    """Content is what the replica has of an origin, set aside or not."""

    def __init__(self, node: NodeId, clock: Clock, *, log_txs: int, keeper: type[MemoryStorage]) -> None:
        self._node, self._clock, self._log_txs, self._keeper = node, clock, log_txs, keeper
        self._image, self._marked = DiskImage(), DiskImage()

    def open(self, *, new: bool) -> None:
        self.storage = self._keeper(
            self._node,
            NEW if new else OLD,
            self._clock,
            image=self._image,
            log_txs=self._log_txs,
            refuses=lambda op: not new and "odd" in (op.row or ()),
        )

    def stop(self) -> None:
        self.storage.close()

    def kill(self) -> None:
        """What was committed is on disk, and the file proves it: only the process ended."""
        self._image.whole = self.storage.proven()

    def mark(self) -> None:
        self._marked = self._image.copy()

    def rewind(self, *, whole: bool) -> None:
        self._image = self._marked.copy()
        self._image.whole = whole and self._image.whole

    def wipe(self) -> None:
        self._image = DiskImage()

    def content(self, origin: NodeId, scope: Scope) -> Content:
        found: dict[str, set[tuple[Value, ...]]] = {}
        stream = self._image.streams.get((origin, scope))
        for _, op, _ in stream.rows.values() if stream is not None else ():
            if op.row is not None:
                found.setdefault(op.table, set()).add((*op.key, *op.columns, *op.row))
        return {table: frozenset(found.get(table, ())) for table in NEW if NEW[table].scope is scope}

    def close(self) -> None:
        return None


class CatalogFileDisk:
    """Content is what readers see. Each life has its own folder: what a killed one left open is harmless."""

    def __init__(self, node: NodeId, clock: Clock, place: Path) -> None:
        self._node, self._clock, self._place = node, clock, place
        self._lives = 0
        self._boots = 0
        self._here = self._fresh()
        self._marked: Path | None = None

    def open(self, *, new: bool) -> None:
        boot = f"boot-{self._boots}"
        schemas = (EXTRAS,) if new else ()
        self.storage = SqliteStorage(self._here / "catalog.db", self._node, self._clock, schemas, boot=lambda: boot)

    def stop(self) -> None:
        self.storage.close()

    def kill(self) -> None:
        copy = self._copy()
        self.storage.close()
        self._here = copy

    def mark(self) -> None:
        self._marked = self._copy()

    def rewind(self, *, whole: bool) -> None:
        if self._marked is None:
            self.wipe()
            return
        self._here = self._marked
        self._boots += 0 if whole else 1
        self._marked = self._copy()

    def wipe(self) -> None:
        self._here = self._fresh()

    def content(self, origin: NodeId, scope: Scope) -> Content:
        known = self.storage.tables()
        found: dict[str, frozenset[tuple[Value, ...]]] = {}
        for table in NEW:
            if known.get(table) is scope:
                answer = self.storage.query(Statement(query=f"SELECT * FROM {table} WHERE node = ?", params=(origin,)))
                found[table] = frozenset(answer.rows)
        return found

    def close(self) -> None:
        shutil.rmtree(self._place, ignore_errors=True)

    def _copy(self) -> Path:
        fresh = self._fresh()
        shutil.copytree(self._here, fresh, dirs_exist_ok=True)
        return fresh

    def _fresh(self) -> Path:
        self._lives += 1
        fresh = self._place / str(self._lives)
        fresh.mkdir(parents=True)
        return fresh
