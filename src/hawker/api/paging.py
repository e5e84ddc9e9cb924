"""Lists in pages. The cursor is the key of the last item shown, in base64 so that nobody leans on it. Nodes and brokers
give out the same, so a page of one can go on at another.
"""

import base64
import binascii
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

from anyio.lowlevel import checkpoint

from hawker.api.bounds import APPS_IN_PAGE
from hawker.api.route import Page
from hawker.errors import BadRequest


def cursor_after(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode()


def after_of(cursor: str | None) -> str:
    """The key that the page comes after: no item has an empty one. Raises `BadRequest`."""
    if not cursor:
        return ""
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise BadRequest("cursor is not one that this API gave out") from error


T = TypeVar("T")

_FOUND_AT_ONCE = 16


def page_of(
    items: Iterable[T], key: Callable[[T], str], limit: int | None, cursor: str | None, *, most: int = APPS_IN_PAGE
) -> Page[T]:
    """The items after `cursor`, at most `limit`, which is `most` at most; all of them without one. `items` are in the
    order of `key`; no more of them are read than the page and one."""
    _check(limit, most)
    after = after_of(cursor)
    beyond = (item for item in items if key(item) > after)
    shown = tuple(islice(beyond, limit))
    if limit is None or next(beyond, None) is None:
        return Page(shown)
    return Page(shown, next_cursor=cursor_after(key(shown[-1])))


async def page_found(
    keys: Iterable[str], find: Callable[[str], T | None], limit: int | None, cursor: str | None, *, most: int
) -> Page[T]:
    """As `page_of`, of the items that `find` has for `keys`, which are in order; None: it is not in the list. For items
    that take long to read: lets others run in between, however few are in the list."""
    _check(limit, most)
    after, last, shown = after_of(cursor), "", list[T]()
    for number, key in enumerate(keys, 1):
        if number % _FOUND_AT_ONCE == 0:
            await checkpoint()
        item = find(key) if key > after else None
        if item is not None and len(shown) == limit:
            return Page(tuple(shown), next_cursor=cursor_after(last))
        if item is not None:
            shown.append(item)
            last = key
    return Page(tuple(shown))


def _check(limit: int | None, most: int) -> None:
    if limit is not None and not 1 <= limit <= most:
        raise BadRequest(f"limit must be between 1 and {most}, not {limit}")
