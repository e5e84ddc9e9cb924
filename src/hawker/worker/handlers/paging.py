"""Lists in pages: a cursor is the key of the last item shown, in base64 so that nobody leans on it."""

import base64
import binascii
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

from hawker.api.bounds import APPS_IN_PAGE
from hawker.api.route import Page
from hawker.errors import BadRequest

T = TypeVar("T")


def page_of(
    items: Iterable[T], key: Callable[[T], str], limit: int | None, cursor: str | None, *, most: int = APPS_IN_PAGE
) -> Page[T]:
    """The items after `cursor`, at most `limit`, which is `most` at most; all of them without one. `items` are in the
    order of `key`; no more of them are read than the page and one."""
    if limit is not None and not 1 <= limit <= most:
        raise BadRequest(f"limit must be between 1 and {most}, not {limit}")
    after = after_of(cursor)
    beyond = (item for item in items if key(item) > after)
    shown = tuple(islice(beyond, limit))
    if limit is None or next(beyond, None) is None:
        return Page(shown)
    return Page(shown, next_cursor=base64.urlsafe_b64encode(key(shown[-1]).encode()).decode())


def after_of(cursor: str | None) -> str:
    """The key that the page comes after: no item has an empty one. Raises `BadRequest`."""
    return _decode(cursor) if cursor else ""


def _decode(cursor: str) -> str:
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise BadRequest("cursor is not one that this API gave out") from error
