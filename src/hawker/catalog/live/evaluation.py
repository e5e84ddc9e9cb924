"""Evaluation of one live query by the catalog's schema: first the whole answer, then what changed. All of it blocks, in
one thread at a time.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from hawker.catalog.contract import RowChange, Statement
from hawker.catalog.live.join_tree import JoinTree, TableInfo, tree_of
from hawker.catalog.live.result_cache import CachedQuery, FreshRow, Key, ResultCache
from hawker.catalog.read_connection import ReadConnection, ReadPool
from hawker.clock import Clock
from hawker.errors import BadRequest, Fault
from hawker.value_object import ValueObject

# What live queries know of the catalog's file: replicated tables with their keys, and which functions gather rows.


class LiveSchema(ValueObject, frozen=True):
    """`tables` and `views` by names in small letters."""

    tables: Mapping[str, TableInfo]
    views: frozenset[str]
    aggregates: frozenset[str]
    """Names of functions that make one value of many rows, in small letters."""

    def table(self, name: str) -> TableInfo | None:
        return self.tables.get(name.lower())


def read_schema(file: Path) -> LiveSchema:
    """Blocks. Tables of the catalog's own, which begin with two underscores or end with `__m`, are not replicated."""
    db = apsw.Connection(f"file:{quote(str(file))}?mode=ro", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        db.set_busy_timeout(5000)
        listed: list[Any] = db.execute("PRAGMA main.table_list").fetchall()
        tables = [_table(db, name) for _, name, kind, *_ in listed if kind == "table" and _is_open(name)]
        views = frozenset(name.lower() for _, name, kind, *_ in listed if kind == "view")
        functions: list[Any] = db.execute("PRAGMA function_list").fetchall()
        gathering = frozenset(name.lower() for name, _, kind, *_ in functions if kind in ("a", "w"))
    finally:
        db.close(True)
    return LiveSchema({table.name.lower(): table for table in tables if table.key}, views, gathering)


def _is_open(name: str) -> bool:
    return not (name.startswith(("__", "sqlite_")) or name.endswith("__m"))


def _table(db: apsw.Connection, name: str) -> TableInfo:
    columns: list[Any] = db.execute("SELECT name, pk FROM pragma_table_xinfo(?)", (name,)).fetchall()
    key = sorted((pk, column) for column, pk in columns if pk)
    return TableInfo(name, tuple(column for column, _ in columns), tuple(column for _, column in key))


FIRST_S = 60.0
AGAIN_S = 30.0
_MANY_ROOTS = 5_000  # beyond it, asking for all is as good
_SIZES = (1, 4, 16, 64, 256)
_TAKE = 500
_TAKE_BYTES = 1024 * 1024

Changed = Mapping[str, Collection[Key]]
"""Keys of rows that changed, by their table's name in small letters."""


class QueryPlan(ValueObject, frozen=True):
    """A query that may be live. Without a `tree` it is asked as a whole whenever one of `tables` changed."""

    sql: str
    """The statement, with its parameters written out."""
    columns: tuple[str, ...]
    """The names of what each row of the answer has."""
    tables: tuple[TableInfo, ...]
    tree: JoinTree | None

    @property
    def sources(self) -> int:
        return len(self.tree.sources) if self.tree else 0

    @property
    def about(self) -> CachedQuery:
        return CachedQuery(sql=self.sql, columns=self.columns, sources=self.sources)

    def concerns(self, changed: Changed) -> bool:
        return any(table.name.lower() in changed for table in self.tables)


def plan_of(reader: ReadConnection, statement: Statement, schema: LiveSchema) -> QueryPlan:
    """The plan of a live query. Raises `BadRequest` for what cannot be live."""
    look = reader.look(statement)
    read = {name for name in look.reads if name.lower() not in schema.views}
    tables = []
    for name in sorted(read):
        table = schema.table(name)
        if table is None:
            raise BadRequest(f"table `{name}` not found in schema")
        tables.append(table)
    if not tables:
        raise BadRequest("a subscription needs a query of at least one table")
    tree = tree_of(look.sql, schema.tables, schema.aggregates)
    if tree is not None and not _holds(reader, tree, tables):
        tree = None
    return QueryPlan(look.sql, look.columns, tuple(tables), tree)


def _holds(reader: ReadConnection, tree: JoinTree, tables: list[TableInfo]) -> bool:
    """Whether the database agrees with what was read out of the text: the same tables, and all texts that follow."""
    if {source.table.name for source in tree.sources} != {table.name for table in tables}:
        return False
    texts = [(tree.whole(), 0), (tree.of_roots(1), len(tree.sources[0].table.key))]
    texts += [(tree.roots_of(i, 1), len(source.table.key)) for i, source in enumerate(tree.sources) if i]
    try:
        for text, marks in texts:
            reader.look(Statement(query=text, params=(None,) * marks))
    except BadRequest:
        return False
    return True


class Evaluation:
    """Keeps the answer of a plan as it was last seen."""

    def __init__(self, plan: QueryPlan, cache: ResultCache, pool: ReadPool, clock: Clock) -> None:
        self.plan, self.cache = plan, cache
        self._pool, self._clock = pool, clock

    def first(self) -> None:
        with self._reading(FIRST_S) as reader:
            self.cache.fill(self._all(reader))

    def again(self, changed: Changed | None) -> list[RowChange]:
        """The changes of the answer since it was last asked; `changed` None means that anything may have changed.
        Raises `DeadlineExceeded`, `BadRequest` or `Fault` when it cannot be asked any more."""
        tree = self.plan.tree
        with self._reading(AGAIN_S) as reader:
            if tree is None or changed is None:
                return self.cache.replace(self._all(reader), None)
            roots = self._roots(reader, tree, changed)
            if len(roots) > _MANY_ROOTS:
                return self.cache.replace(self._all(reader), None)
            return self.cache.replace(self._of_roots(reader, tree, roots), roots) if roots else []

    @contextmanager
    def _reading(self, seconds: float) -> Iterator[ReadConnection]:
        with self._pool.one() as reader:
            reader.deadline(self._clock.monotonic() + seconds)
            with reader.snapshot():
                yield reader

    def _all(self, reader: ReadConnection) -> Iterator[FreshRow]:
        tree = self.plan.tree
        yield from self._rows(reader, Statement(query=tree.whole() if tree else self.plan.sql))

    def _of_roots(self, reader: ReadConnection, tree: JoinTree, roots: Collection[Key]) -> Iterator[FreshRow]:
        for keys in _portions(roots):
            yield from self._rows(reader, Statement(query=tree.of_roots(len(keys)), params=_flat(keys)))

    def _roots(self, reader: ReadConnection, tree: JoinTree, changed: Changed) -> set[Key]:
        """Those whose rows may differ: that changed, that held a row that changed, or that meet one now."""
        roots: set[Key] = set()
        for index, source in enumerate(tree.sources):
            keys = changed.get(source.table.name.lower(), ())
            if index == 0:
                roots.update(map(tuple, keys))
                continue
            roots |= self.cache.roots_holding(index, keys)
            for portion in _portions(keys):
                found = Statement(query=tree.roots_of(index, len(portion)), params=_flat(portion))
                roots.update(row for row in _each(reader, found))
        return roots

    def _rows(self, reader: ReadConnection, statement: Statement) -> Iterator[FreshRow]:
        width = len(self.plan.columns)
        sources = self.plan.tree.sources if self.plan.tree else ()
        for row in _each(reader, statement):
            at, keys = width, []
            for source in sources:
                key = row[at : at + len(source.table.key)]
                keys.append(None if key[0] is None else key)
                at += len(key)
            if at != len(row):
                raise Fault("the tables of this query have other columns now: subscribe anew")
            yield FreshRow(keys=tuple(keys), cells=row[:width])


def _each(reader: ReadConnection, statement: Statement) -> Iterator[Key]:
    answer = reader.start(statement)
    try:
        while rows := reader.take(answer, rows=_TAKE, size_bytes=_TAKE_BYTES):
            yield from rows
    finally:
        answer.close()


def _portions(keys: Iterable[Key]) -> Iterator[list[Key]]:
    """In few sizes, so that few statements are ever prepared; the last one is filled up with what it has."""
    left = iter(keys)
    while portion := list(islice(left, _SIZES[-1])):
        size = next(size for size in _SIZES if size >= len(portion))
        yield portion + portion[:1] * (size - len(portion))


def _flat(keys: Iterable[Key]) -> Key:
    return tuple(value for key in keys for value in key)
