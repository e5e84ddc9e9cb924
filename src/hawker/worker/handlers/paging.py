"""Lists in pages."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

from hawker.api.bounds import APPS_IN_PAGE
from hawker.api.cursor import after_of, cursor_after
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
    return Page(shown, next_cursor=cursor_after(key(shown[-1])))
