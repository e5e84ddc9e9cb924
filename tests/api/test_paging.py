from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.api.bounds import APPS_IN_PAGE
from hawker.api.paging import after_of, cursor_after, page_of
from hawker.api.route import Page
from hawker.errors import BadRequest

LETTERS = tuple("abcde")


def _page(limit: int | None, cursor: str | None = None) -> Page[str]:
    return page_of(LETTERS, lambda letter: letter, limit, cursor)


def test_without_a_limit_everything_is_shown() -> None:
    assert _page(None) == Page(LETTERS)


def test_pages_follow_each_other_to_the_end() -> None:
    first = _page(2)
    second = _page(2, first.next_cursor)
    third = _page(2, second.next_cursor)
    assert (first.items, second.items, third) == (("a", "b"), ("c", "d"), Page(("e",)))


def test_a_full_last_page_has_no_cursor() -> None:
    assert _page(5).next_cursor is None


def test_no_more_is_read_than_the_page_and_one() -> None:
    endless = (f"{number:09d}" for number in count())
    page = page_of(endless, lambda item: item, 2, None)
    assert page.items == ("000000000", "000000001") and next(endless) == "000000003"


@pytest.mark.parametrize("limit", [0, -1, APPS_IN_PAGE + 1])
def test_a_limit_out_of_range_is_refused(limit: int) -> None:
    with pytest.raises(BadRequest, match="limit"):
        _page(limit)


@pytest.mark.parametrize("cursor", ["%%%", "/w==", "a"])
def test_a_cursor_of_somebody_else_is_refused(cursor: str) -> None:
    with pytest.raises(BadRequest, match="cursor"):
        _page(2, cursor)


@given(st.text(st.characters(codec="utf-8")))
def test_a_cursor_comes_back_as_the_key_that_it_was_made_of(key: str) -> None:
    assert after_of(cursor_after(key)) == key


def test_no_cursor_is_before_everything() -> None:
    assert after_of(None) == after_of("") == ""


@pytest.mark.parametrize("text", ["!", "a", "gA==", "ÿ", "MQ==\n", "../../etc"])
def test_a_cursor_that_nobody_gave_out_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        after_of(text)
