"""What changed and was not looked at yet. Bounded: when too many rows are named, only their tables count."""

from collections.abc import Mapping
from dataclasses import dataclass

from hawker.catalog.contract import Touched
from hawker.catalog.live.result_cache import Key

MOST_KEYS = 20_000


@dataclass(frozen=True, slots=True)
class Batch:
    """`everything`: no list of keys is whole."""

    tables: Mapping[str, frozenset[Key]]
    everything: bool

    @property
    def empty(self) -> bool:
        return not self.tables and not self.everything


class Pending:
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

    def take(self) -> Batch:
        batch = Batch({name: frozenset(keys) for name, keys in self._tables.items()}, self._everything)
        self._tables, self._everything = {}, False
        return batch
