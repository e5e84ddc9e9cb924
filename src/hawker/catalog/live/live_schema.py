"""What live queries know of the catalog's file: replicated tables with their keys, and which functions gather rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from hawker.catalog.live.join_tree import TableInfo


@dataclass(frozen=True, slots=True)
class LiveSchema:
    """`tables` and `views` by names in small letters."""

    tables: Mapping[str, TableInfo]
    views: frozenset[str]
    aggregates: frozenset[str]

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
