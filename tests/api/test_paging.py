from itertools import count, product

import pytest
from anyio import create_task_group
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from hawker.api.bounds import APPS_IN_PAGE
from hawker.api.paging import after_of, cursor_after, page_found, page_of
from hawker.api.route import Page
from hawker.errors import BadRequest

pytestmark = pytest.mark.anyio
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


async def test_a_page_that_is_found_is_the_page_of_the_list() -> None:
    there = {"b": 2, "d": 4, "e": 5}
    for limit, cursor in product((None, 1, 2, 3), (None, cursor_after("b"), cursor_after("e"))):
        page = page_of(there, str, limit, cursor)
        wanted = Page(tuple(there[key] for key in page.items), next_cursor=page.next_cursor)
        assert await page_found(LETTERS, there.get, limit, cursor, most=5) == wanted
    with pytest.raises(BadRequest, match="limit"):
        await page_found(LETTERS, there.get, 6, None, most=5)


async def test_others_run_while_a_page_is_found() -> None:
    keys, turns = [f"{number:03d}" for number in range(200)], list[int]()

    async def take_turns() -> None:
        while True:
            await checkpoint()
            turns.append(1)

    async with create_task_group() as tasks:
        tasks.start_soon(take_turns)
        assert await page_found(keys, lambda key: None, 5, None, most=5) == Page(())
        tasks.cancel_scope.cancel()
    assert len(turns) >= 10
