"""Bodies about the catalog: a reading statement, and its answer row by row."""

from typing import TypeAlias

from hawker.api.bodies.body import Answer, Request

Cell: TypeAlias = int | float | str | tuple[int, ...] | None
"""What a column of a row has; bytes are a list of numbers."""


class CatalogStatement(Request, frozen=True, kw_only=True):
    """One statement that reads. `params` go to its question marks in order; `timeout` is seconds, 60 unless told."""

    query: str
    params: tuple[Cell, ...] | None = None
    timeout: int | None = None


class CatalogLine(Answer, frozen=True, kw_only=True):
    """First `columns`, then each `row`. `change` says what became of a row: insert, update or delete; it is absent
    while the answer as it is at the beginning is sent, the end of which is the line with `complete`."""

    columns: tuple[str, ...] | None = None
    row: tuple[Cell, ...] | None = None
    change: str | None = None
    complete: bool | None = None
