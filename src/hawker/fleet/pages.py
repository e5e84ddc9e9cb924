"""A node's own queries of the catalog, in pages by key: whatever other nodes and tenants put there, an answer has no
bound that one of them could reach for all.
"""

from collections.abc import AsyncIterator, Sequence
from typing import TypeAlias

from hawker.catalog.change import Value
from hawker.catalog.contract import Statement
from hawker.errors import BadRequest, Unprocessable
from hawker.fleet.failover import CatalogQueries
from hawker.value_object import ValueObject

PAGE_ROWS = 10_000
_SMALLER = 8


class PagedQuery(ValueObject, frozen=True, kw_only=True):
    """A query that is asked page by page."""

    text: str
    """The query: `{after}` stands where the key is compared, behind all parameters of the query's own; it orders by the
    key and ends with `LIMIT ?`."""
    key: tuple[str, ...]
    """The columns of the key, as they are named where `{after}` stands."""
    places: tuple[int, ...]
    """The places of the key's columns in a row of the answer."""

    def statement(self, params: Sequence[Value], last: Sequence[Value] | None, limit: int) -> Statement:
        after = "1" if last is None else f"({', '.join(self.key)}) > ({', '.join('?' * len(self.key))})"
        return Statement(query=self.text.replace("{after}", after), params=(*params, *(last or ()), limit))


Pages: TypeAlias = AsyncIterator[Sequence[tuple[Value, ...]]]


async def pages(
    catalog: CatalogQueries, query: PagedQuery, *params: Value, timeout_s: float, most_rows: int | None = None
) -> Pages:
    """The rows of the answer, at most `most_rows`, each page as the catalog is when it is asked. A page that the
    catalog finds too large is asked for again with fewer rows. Raises what a query raises."""
    last: Sequence[Value] | None = None
    size = PAGE_ROWS
    left = most_rows
    while left is None or left > 0:
        limit = size if left is None else min(size, left)
        try:
            rows = (await catalog.query(query.statement(params, last, limit), timeout_s=timeout_s)).rows
        except (BadRequest, Unprocessable):
            if limit == 1:
                raise
            size = max(1, limit // _SMALLER)
            continue
        yield rows
        if len(rows) < limit:
            return
        last = tuple(rows[-1][place] for place in query.places)
        left = None if left is None else left - len(rows)


async def all_rows(
    catalog: CatalogQueries, query: PagedQuery, *params: Value, timeout_s: float
) -> list[tuple[Value, ...]]:
    """All rows at once, for rows that are small."""
    return [row async for row in each_of(pages(catalog, query, *params, timeout_s=timeout_s))]


async def each_of(found: Pages) -> AsyncIterator[tuple[Value, ...]]:
    async for page in found:
        for row in page:
            yield row
