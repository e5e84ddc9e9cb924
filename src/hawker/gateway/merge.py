"""Pages of one list from several nodes, as one page. Pure.

Each node gives its first items beyond the same cursor. What a node did not get to show lies beyond its own cursor, so
nothing beyond the least of these is shown: no item is ever passed over, whatever a page holds.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[T]):
    """One node's page: `items` in order, `upto` the key that it got to if there is more, else None."""

    items: Sequence[T]
    upto: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole(Generic[T]):
    """`upto` is the key to go on after, None at the end of the list."""

    items: tuple[T, ...]
    upto: str | None = None


def merged(
    parts: Iterable[Part[T]],
    key: Callable[[T], str],
    limit: int | None,
    *,
    newest_first: bool = False,
    better: Callable[[T, T], T] = lambda first, other: first,
) -> Whole[T]:
    """At most `limit` items, in the order of `key`, or against it with `newest_first`. Of several with one key `better`
    says which counts."""
    parts = tuple(parts)
    found: dict[str, T] = {}
    for part in parts:
        for item in part.items:
            name = key(item)
            found[name] = better(found[name], item) if name in found else item
    ends = [part.upto for part in parts if part.upto is not None]
    end = (max(ends) if newest_first else min(ends)) if ends else None
    names = sorted(found, reverse=newest_first)
    within = [name for name in names if end is None or (name >= end if newest_first else name <= end)]
    shown = within if limit is None else within[:limit]
    items = tuple(found[name] for name in shown)
    if len(shown) < len(within):
        return Whole(items=items, upto=shown[-1])
    return Whole(items=items, upto=end)
