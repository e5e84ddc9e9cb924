"""The SQL of one replicated table and of its side table: put a row, delete one, read one, read what changed."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apsw

from hawker.catalog.change import Op, Value, VersionedOp
from hawker.catalog.schema import Replicated, quoted

Key = tuple[Value, ...]


class TableRows:
    """Each method is one statement, inside the caller's transaction. A copy that is read once has no indexes."""

    def __init__(self, connection: apsw.Connection, table: Replicated, *, indexed: bool = True) -> None:
        self._connection, self.table = connection, table
        self._name, self._side = quoted(table.name), quoted(f"{table.name}__m")
        self._keys = ", ".join(map(quoted, table.key))
        self._match = " AND ".join(f"{quoted(name)} = ?" for name in table.key)
        self._known = frozenset(table.columns)
        self._owner = quoted(table.key[0])
        self.others = tuple(place for place in range(len(table.stored)) if place not in table.places)
        self._puts: dict[tuple[str, ...], str] = {}
        self._note = self._note_text()
        self._read = f"SELECT {', '.join(map(quoted, table.stored))} FROM {self._name} WHERE {self._match}"
        self._delete = f"DELETE FROM {self._name} WHERE {self._match}"
        self._changed = self._changed_text(indexed)

    # What is known of a row.

    def note(self, key: Key, version: int, run: int, died: int) -> bool:
        """Notes that this is the row's last version; False when a later one of the same run is known."""
        self._connection.execute(self._note, (*key, version, died, run))
        return bool(self._connection.changes())

    def note_all(self, ops: Iterable[Op], version: int, run: int, died: int) -> None:
        """Notes the last version of several rows, with a version that is beyond all that are known."""
        rows = ((*op.key, version, died if op.row is None else 0, run) for op in ops)
        self._connection.executemany(self._note, rows)

    def unnote(self, key: Key) -> None:
        """Forgets what is known of the row: the next version that comes is taken, even the same one."""
        self._connection.execute(f"DELETE FROM {self._side} WHERE {self._match}", key)

    def _note_text(self) -> str:
        values = ", ".join("?" for _ in range(len(self.table.key) + 3))
        return (
            f"INSERT INTO {self._side} ({self._keys}, __ver, __del, __run) VALUES ({values}) ON CONFLICT ({self._keys})"
            " DO UPDATE SET __ver = excluded.__ver, __del = excluded.__del, __run = excluded.__run"
            " WHERE __run != excluded.__run OR __ver < excluded.__ver"
        )

    # The row.

    def knows(self, columns: Sequence[str]) -> bool:
        return self._known.issuperset(columns)

    def put(self, key: Key, columns: tuple[str, ...], row: Sequence[Value]) -> None:
        """The whole row: a column that is not named has its default from now on."""
        text = self._puts.get(columns) or self._put_text(columns)
        self._connection.execute(text, (*key, *row))

    def delete(self, key: Key) -> None:
        self._connection.execute(self._delete, key)

    def read(self, key: Key) -> tuple[Value, ...]:
        """All that is stored of a row that is there, the key in its places."""
        row: Any = self._connection.execute(self._read, key).fetchone()
        assert row is not None, f"{self.table.name}: no row {key}"
        return tuple(row)

    def _put_text(self, columns: tuple[str, ...]) -> str:
        names = ", ".join(map(quoted, (*self.table.key, *columns)))
        values = ", ".join("?" for _ in range(len(self.table.key) + len(columns)))
        update = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in self.table.columns)
        then = f"UPDATE SET {update}" if update else "NOTHING"
        text = f"INSERT INTO {self._name} ({names}) VALUES ({values}) ON CONFLICT ({self._keys}) DO {then}"
        if len(self._puts) < 100:  # the names come from other nodes
            self._puts[columns] = text
        return text

    # All of an owner's.

    def changed(self, owner: str, after: int) -> Iterator[VersionedOp]:
        """Each row of an owner whose last version is beyond `after`, in the order of versions."""
        width = len(self.table.key)
        for row in self._connection.execute(self._changed, (owner, after)):
            key = row[3 : 3 + width]
            if row[1]:
                yield VersionedOp(row[0], Op(self.table.name, key))
            elif row[2]:
                yield VersionedOp(row[0], self._op(key, row[3 + width :]))

    def _op(self, key: Key, row: Sequence[Value]) -> Op:
        """Without the columns that have their default, which a reader may not even know."""
        table = self.table
        every = zip(table.columns, row, table.defaults, table.fixed, strict=True)
        named = [(n, v) for n, v, d, fixed in every if not fixed or v != d or type(v) is not type(d)]
        return Op(table.name, key, tuple(name for name, _ in named), tuple(value for _, value in named))

    def _changed_text(self, indexed: bool) -> str:
        keys = ", ".join(f"m.{quoted(name)}" for name in self.table.key)
        columns = "".join(f", t.{quoted(name)}" for name in self.table.columns)
        same = " AND ".join(f"t.{quoted(name)} = m.{quoted(name)}" for name in self.table.key)
        by_version = f"INDEXED BY {quoted(f'{self.table.name}__v')}" if indexed else ""
        return (
            f"SELECT m.__ver, m.__del, t.{self._owner} IS NOT NULL, {keys}{columns}"
            f" FROM {self._side} m {by_version} LEFT JOIN {self._name} t ON {same}"
            f" WHERE m.{self._owner} = ? AND m.__ver > ? ORDER BY m.__ver"
        )

    def sweep(self, owner: str, run: int) -> list[Key]:
        """Rows that this run has not confirmed go, with all that is known of them. Which ones were live."""
        where = f"FROM {self._side} WHERE {self._owner} = ? AND __run != ?"
        keys = self._connection.execute(f"SELECT {self._keys} {where}", (owner, run)).fetchall()
        self._connection.executemany(self._delete, keys)
        self._connection.execute(f"DELETE {where}", (owner, run))
        return keys

    def count(self, owner: str) -> int:
        return int(self._connection.execute(f"SELECT count(*) FROM {self._side} WHERE {self._owner} = ?", (owner,)).get)

    def renumber(self, owner: str, run: int) -> None:
        """An owner's rows get new versions from `next_version()`, deletions go."""
        self._connection.execute(f"DELETE FROM {self._side} WHERE {self._owner} = ? AND __del > 0", (owner,))
        text = f"UPDATE {self._side} SET __ver = next_version(), __run = ? WHERE {self._owner} = ?"
        self._connection.execute(text, (run, owner))

    def collect(self, before: float) -> list[tuple[str, int, int]]:
        """Deletions that are older go: by owner the last version that went, and how many."""
        where = f"FROM {self._side} WHERE __del > 0 AND __del < ?"
        floors: list[Any] = self._connection.execute(
            f"SELECT {self._owner}, max(__ver), count(*) {where} GROUP BY 1", (before,)
        ).fetchall()
        if floors:
            self._connection.execute(f"DELETE {where}", (before,))
        return floors

    def drop(self, owner: str) -> None:
        for table in (self._name, self._side):
            self._connection.execute(f"DELETE FROM {table} WHERE {self._owner} = ?", (owner,))
