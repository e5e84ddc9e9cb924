"""Lists of several nodes as one: however it is paged, it is the whole list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.gateway.merge import Part, Whole, merged

KEYS = st.text("abc", min_size=1, max_size=3)


def key(item: str) -> str:
    return item


def page_at(node: set[str], after: str | None, limit: int, *, newest_first: bool) -> Part[str]:
    """What a node answers."""
    beyond = [
        item
        for item in sorted(node, reverse=newest_first)
        if after is None or (item < after if newest_first else item > after)
    ]
    shown = beyond[:limit]
    return Part(items=shown, upto=shown[-1] if len(beyond) > limit else None)


def pages(nodes: list[set[str]], limit: int, most: list[int], *, newest_first: bool) -> list[Whole[str]]:
    """Every page, each node showing no more than its `most` at once."""
    after, found = None, list[Whole[str]]()
    while True:
        parts = [
            page_at(node, after, min(limit, at_most), newest_first=newest_first)
            for node, at_most in zip(nodes, most, strict=True)
        ]
        found.append(merged(parts, key, limit, newest_first=newest_first))
        if found[-1].upto is None:
            return found
        assert after is None or (found[-1].upto < after if newest_first else found[-1].upto > after)
        after = found[-1].upto


@given(st.lists(st.tuples(st.sets(KEYS), st.integers(1, 4)), max_size=5), st.integers(1, 5), st.booleans())
def test_all_pages_together_are_the_whole_list(
    nodes: list[tuple[set[str], int]], limit: int, newest_first: bool
) -> None:
    found = pages([node for node, _ in nodes], limit, [most for _, most in nodes], newest_first=newest_first)
    items = [item for page in found for item in page.items]
    assert items == sorted({item for node, _ in nodes for item in node}, reverse=newest_first)
    assert all(len(page.items) <= limit for page in found)


def test_of_two_with_one_key_the_better_counts() -> None:
    parts = [Part(items=["a1", "b1"]), Part(items=["a2"])]
    assert merged(parts, lambda item: item[0], None, better=max).items == ("a2", "b1")


@pytest.mark.parametrize("limit", [None, 1])
def test_no_parts_are_an_empty_list(limit: int | None) -> None:
    assert merged(list[Part[str]](), key, limit) == Whole(items=())


def test_a_page_that_was_emptied_by_a_filter_still_goes_on() -> None:
    assert merged([Part(items=[], upto="m"), Part(items=["n"])], key, 5) == Whole(items=(), upto="m")
