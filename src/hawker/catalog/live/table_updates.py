"""Updates of tables for those who listen: the buffer of keys that changed and were not looked at yet, and the feed of
one table's updates (which rows changed, and whether they are still there; not what they hold).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from hawker.catalog.contract import Statement, Touched
from hawker.catalog.json_lines import error_line, notify_line
from hawker.catalog.live.feed import Feed, FeedEvent
from hawker.catalog.live.join_tree import TableInfo
from hawker.catalog.live.result_cache import Key
from hawker.catalog.live.sql_tokens import quoted
from hawker.catalog.read_connection import ReadPool
from hawker.clock import Clock

MOST_KEYS = 20_000


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """Keys of changed rows by table. `everything`: any row may have changed, so no list of keys is complete."""

    tables: Mapping[str, frozenset[Key]]
    everything: bool

    @property
    def empty(self) -> bool:
        return not self.tables and not self.everything


class ChangeBuffer:
    """Collects changed keys until they are looked at. Bounded: beyond `MOST_KEYS` it holds `everything` instead."""

    def __init__(self) -> None:
        self._tables: dict[str, set[Key]] = {}
        self._everything = False

    @property
    def count(self) -> int:
        return MOST_KEYS if self._everything else sum(map(len, self._tables.values()))

    def add(self, touched: Touched) -> None:
        self._everything = self._everything or touched.everything
        for name, keys in touched.tables.items():
            self._tables.setdefault(name.lower(), set()).update(keys)
        if self.count > MOST_KEYS:
            self._everything = True
        if self._everything:
            self._tables.clear()

    def take(self) -> ChangedKeys:
        batch = ChangedKeys({name: frozenset(keys) for name, keys in self._tables.items()}, self._everything)
        self._tables, self._everything = {}, False
        return batch


_PORTION = 256
TOO_MUCH = "more changed than can be told row by row: read the table anew, then ask for its updates again"


class TableUpdates:
    def __init__(self, table: TableInfo, pool: ReadPool, clock: Clock) -> None:
        self.table = table
        self.feed = Feed(clock)
        self._pool = pool
        names = ", ".join(map(quoted, table.key))
        self._query = f"SELECT {names} FROM {quoted(table.name)} WHERE ({names}) IN (VALUES {{rows}})"
        self._one = f"({', '.join('?' * len(table.key))})"

    def look(self, keys: Collection[Key]) -> list[FeedEvent]:
        """Blocks."""
        there: set[Key] = set()
        left = iter(keys)
        with self._pool.one() as reader:
            while portion := list(islice(left, _PORTION)):
                params = tuple(value for key in portion for value in key)
                query = self._query.format(rows=", ".join([self._one] * len(portion)))
                answer = reader.start(Statement(query=query, params=params))
                there.update(reader.take(answer, rows=_PORTION + 1, size_bytes=1 << 30))
                answer.close()
        return list(self._told(keys, there))

    def overflow(self) -> None:
        """Tell those who listen that they have to begin again."""
        self.feed.end(FeedEvent(TOO_MUCH, error_line(TOO_MUCH)))

    def _told(self, keys: Collection[Key], there: set[Key]) -> Iterator[FeedEvent]:
        for key in keys:
            kind = "update" if key in there else "delete"
            yield FeedEvent((kind, key), notify_line(kind, key))
