"""Lists in pages: a cursor is the key of the last item shown, in base64 so that nobody leans on it."""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import TypeVar

from hawker.api.route import Page
from hawker.errors import BadRequest

T = TypeVar("T")

LARGEST = 5000


def page_of(items: Sequence[T], key: Callable[[T], str], limit: int | None, cursor: str | None) -> Page[T]:
    """The items after `cursor`, at most `limit`; all of them without one. `items` are in the order of `key`."""
    if limit is not None and not 1 <= limit <= LARGEST:
        raise BadRequest(f"limit must be between 1 and {LARGEST}, not {limit}")
    after = _decode(cursor) if cursor else None
    rest = [item for item in items if after is None or key(item) > after]
    if limit is None or len(rest) <= limit:
        return Page(tuple(rest))
    shown = rest[:limit]
    return Page(tuple(shown), next_cursor=base64.urlsafe_b64encode(key(shown[-1]).encode()).decode())


def _decode(cursor: str) -> str:
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise BadRequest("cursor is not one that this API gave out") from error
