"""A fake node's answers out of its catalog: one statement's rows, and changes of them."""

from collections.abc import AsyncIterator
from typing import Any

from hawker.api.contract.catalog import CatalogLine
from hawker.api.route import Call

ANSWER = (
    CatalogLine(columns=("id", "state", "data")),
    CatalogLine(row=("3d8f", "started", (0, 255))),
    CatalogLine(row=("4e9a", 'a "b", c', None)),
    CatalogLine(complete=True),
)
CHANGES = (
    CatalogLine(row=("5f", "created", None), change="insert"),
    CatalogLine(row=("5f", "st\x1b[31marted", None), change="update"),
    CatalogLine(row=("3d8f", "started", (0, 255)), change="delete"),
)


def counted(number: int) -> tuple[CatalogLine, ...]:
    """A count; as a list of apps, one of which another node is the home."""
    return (CatalogLine(row=(number, 1, 1)),)


class FakeCatalog:
    answer: tuple[CatalogLine, ...] = ANSWER
    missing_regions: tuple[str, ...] = ()

    async def _query_catalog(self, call: Call[Any, Any, Any]) -> AsyncIterator[CatalogLine]:
        return _each(self.answer)

    async def _subscribe_catalog(self, call: Call[Any, Any, Any]) -> AsyncIterator[CatalogLine]:
        return _each(ANSWER + CHANGES)


async def _each(lines: tuple[CatalogLine, ...]) -> AsyncIterator[CatalogLine]:
    for line in lines:
        yield line
