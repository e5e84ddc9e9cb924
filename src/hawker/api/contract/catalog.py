"""Bodies about the catalog: a reading statement, and its answer row by row."""

from typing import TypeAlias

from hawker.api.contract.body import Answer, Request
from hawker.api.route import NoParams, Stream, Tag
from hawker.errors import DeadlineExceeded, Fault, NotServed, Unavailable
from hawker.permission import Action

Cell: TypeAlias = int | float | str | tuple[int, ...] | None
"""What a column of a row has; bytes are a list of numbers."""


class CatalogStatement(Request, frozen=True, kw_only=True):
    """One statement that reads. `params` go to its question marks in order; `timeout` is seconds, 10 unless told,
    and more only with the root token."""

    query: str
    """SQL that reads; what would write is refused."""
    params: tuple[Cell, ...] | None = None
    timeout: int | None = None


class CatalogLine(Answer, frozen=True, kw_only=True):
    """First `columns`, then each `row`. `change` says what became of a row: insert, update or delete; it is absent
    while the answer as it is at the beginning is sent, the end of which is the line with `complete`."""

    columns: tuple[str, ...] | None = None
    row: tuple[Cell, ...] | None = None
    change: str | None = None
    complete: bool | None = None


# Calls that read the catalog of a cluster. For operators: not part of the Machines API.

QUERY_CATALOG = Stream(
    name="query_catalog",
    method="POST",
    path="/hawker/v1/catalog/query",
    params=NoParams,
    body=CatalogStatement,
    response=CatalogLine,
    tag=Tag.NODE,
    summary="Ask the catalog with a SELECT",
    errors=(NotServed, Unavailable, DeadlineExceeded, Fault),
    action=Action.READ,
    strict=True,
)

SUBSCRIBE_CATALOG = Stream(
    name="subscribe_catalog",
    method="POST",
    path="/hawker/v1/catalog/subscribe",
    params=NoParams,
    body=CatalogStatement,
    response=CatalogLine,
    tag=Tag.NODE,
    summary="Ask the catalog with a SELECT, and hear of each change of the answer",
    errors=(NotServed, Unavailable, DeadlineExceeded, Fault),
    action=Action.READ,
    strict=True,
)

CATALOG_ROUTES = (QUERY_CATALOG, SUBSCRIBE_CATALOG)
