"""Live queries of a played agent: one for each text, kept for as long as the agent lives in good order, with numbers
that go on whoever listens.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from uuid import UUID, uuid4

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from hawker.catalog.change import Cells
from hawker.catalog.contract import RowChange
from hawker.catalog.json_lines import change_line, columns_line, end_line, notify_line, row_lines
from tests.catalog.played.database import PlayedDatabase, RefusedSql

KEPT_CHANGES = 500
MOST_WAITING = 10_240
_ONE_TABLE = re.compile(
    r"SELECT\s+(?P<what>.+?)\s+FROM\s+(?P<table>\w+)(?P<rest>(\s+(AS\s+)?\w+)?(\s+WHERE\s.+)?)", re.S | re.I
)
"""What a played agent follows; Corrosion follows joins of tables too."""


class NoSubscription(Exception):
    """There is none of this id, or it cannot be followed."""


@dataclass(slots=True)
class Listeners:
    """Who is told. One that is too far behind is dropped."""

    streams: set[MemoryObjectSendStream[bytes]] = field(default_factory=set)

    @contextmanager
    def one(self) -> Iterator[MemoryObjectReceiveStream[bytes]]:
        sender, receiver = anyio.create_memory_object_stream[bytes](MOST_WAITING)
        self.streams.add(sender)
        try:
            yield receiver
        finally:
            self.streams.discard(sender)
            sender.close()
            receiver.close()

    def tell(self, line: bytes) -> None:
        for stream in list(self.streams):
            try:
                stream.send_nowait(line)
            except (anyio.WouldBlock, anyio.BrokenResourceError):
                self.streams.discard(stream)
                stream.close()

    def close(self) -> None:
        for stream in self.streams:
            stream.close()
        self.streams.clear()


class PlayedSubscription:
    """`text` has its parameters written out. Raises `RefusedSql` for what cannot be live."""

    def __init__(self, text: str, database: PlayedDatabase) -> None:
        match = _ONE_TABLE.fullmatch(text.strip())
        if match is None or match["table"] not in database.tables:
            raise RefusedSql("table not found in schema, or not followed by a played agent", prepared=False)
        self.id, self.hash = uuid4(), blake2b(text.encode(), digest_size=8).hexdigest()
        self.table = match["table"]
        key = database.tables[self.table]
        self._width = len(key)
        self._keyed = f"SELECT {', '.join(key)}, {match['what']} FROM {self.table}{match['rest']}"
        self.columns = tuple(str(name) for name, _ in database.prepare(text).description)
        self._row_ids, self.last = count(1), 0
        self._rows: dict[Cells, tuple[int, Cells]] = {
            row[: self._width]: (next(self._row_ids), row[self._width :]) for row in database.rows(self._keyed)
        }
        self._keys_only = database.named(text, self.table) <= set(key) != database.columns(self.table)
        self._unseen: set[Cells] = set()
        self._changes: list[tuple[int, bytes]] = []
        self.listeners = Listeners()

    def flush(self, database: PlayedDatabase, fresh: set[tuple[str, Cells]]) -> None:
        """Tell what changed since. A fresh row has changes of the columns that are not its key, so a query that names
        none of these does not see it until it was deleted and comes back."""
        now = {row[: self._width]: row[self._width :] for row in database.rows(self._keyed)}
        if self._keys_only:
            self._unseen = now.keys() & (self._unseen | {key for table, key in fresh if table == self.table})
        for key, cells in now.items():
            if key in self._unseen:
                continue
            known = self._rows.get(key)
            if known is None:
                self._rows[key] = (next(self._row_ids), cells)
                self._tell("insert", *self._rows[key])
            elif known[1] != cells:
                self._rows[key] = (known[0], cells)
                next(self._row_ids)  # as AUTOINCREMENT does
                self._tell("update", *self._rows[key])
        for key in self._rows.keys() - now.keys():
            self._tell("delete", *self._rows.pop(key))

    def forget_old_changes(self) -> None:
        """Corrosion does so every five minutes."""
        del self._changes[:-KEPT_CHANGES]

    def before(self, after: int | None, *, skip_rows: bool) -> list[bytes]:
        """What a listener hears before what comes: all of it, or the changes after that one. Raises `NoSubscription`
        with what is said where these are no longer kept."""
        if after:
            oldest = self._changes[0][0] if self._changes else self.last + 1
            if after + 1 < oldest:
                raise NoSubscription(f"subscription already deleted older changes, min change id: {oldest}")
            return [line for number, line in self._changes if number > after]
        if skip_rows:
            return []
        rows = sorted(self._rows.values())
        return [columns_line(self.columns), row_lines(rows), end_line(0.0, self.last)]

    def _tell(self, kind: str, row_id: int, cells: Cells) -> None:
        self.last += 1
        line = change_line(RowChange(kind=kind, row_id=row_id, row=cells, number=self.last))
        self._changes.append((self.last, line))
        self.listeners.tell(line)


class PlayedSubscriptions:
    """All of an agent, and who follows the keys of a table."""

    def __init__(self) -> None:
        self._by_text: dict[str, PlayedSubscription] = {}
        self._updates: dict[str, tuple[UUID, Listeners]] = {}

    def open(self, text: str, database: PlayedDatabase, *, existing: bool) -> PlayedSubscription:
        """Raises `RefusedSql`, and `NoSubscription` where it has to exist."""
        found = self._by_text.get(text)
        if found is None:
            made = PlayedSubscription(text, database)
            if existing:
                raise NoSubscription("a `from` query param was supplied, but no existing subscription found")
            found = self._by_text[text] = made
        return found

    def find(self, name: str) -> PlayedSubscription:
        """Raises `NoSubscription`."""
        for each in self._by_text.values():
            if str(each.id) == name:
                return each
        raise NoSubscription(f"could not find subscription with id {name}")

    def updates(self, table: str, database: PlayedDatabase) -> tuple[UUID, Listeners]:
        """Raises `RefusedSql`."""
        if table not in database.tables:
            raise RefusedSql(f"table not found in schema: {table}", prepared=False)
        return self._updates.setdefault(table, (uuid4(), Listeners()))

    def flush(self, database: PlayedDatabase) -> None:
        touched, database.touched = database.touched, {}
        fresh, database.fresh = database.fresh, set()
        for (table, key), there in touched.items():
            if table in self._updates:
                self._updates[table][1].tell(notify_line("update" if there else "delete", key))
        tables = {table for table, _ in touched}
        for each in self._by_text.values():
            if each.table in tables:
                each.flush(database, fresh)

    def disconnect(self) -> None:
        """All listeners."""
        for each in self._by_text.values():
            each.listeners.close()
        for _, listeners in self._updates.values():
            listeners.close()
        self._updates.clear()

    def forget(self) -> None:
        """What an agent does that did not end in good order."""
        self.disconnect()
        self._by_text.clear()
