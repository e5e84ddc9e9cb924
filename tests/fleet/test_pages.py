import pytest

from hawker.errors import Unprocessable
from hawker.fleet import pages as module
from hawker.fleet.pages import PagedQuery, all_rows, pages
from tests.fleet.desk import Desk, Narrow

pytestmark = pytest.mark.anyio

IMAGES = PagedQuery(
    text="SELECT node, digest FROM images WHERE node <> ? AND {after} ORDER BY node, digest LIMIT ?",
    key=("node", "digest"),
    places=(0, 1),
)


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    for number in range(20):
        desk.run("INSERT INTO images VALUES (?, ?)", f"{number % 3:08x}", f"{number:04}" + "x" * 96)
    return desk


def found(desk: Desk) -> list[tuple[object, ...]]:
    return list(desk.rows("SELECT node, digest FROM images ORDER BY node, digest"))


@pytest.mark.parametrize("most_bytes", [110, 500, 10**6])
async def test_all_rows_are_found_in_the_order_of_their_key_however_little_is_answered_at_once(
    desk: Desk, most_bytes: int
) -> None:
    narrow = Narrow(desk, most_bytes)
    assert await all_rows(narrow, IMAGES, "", timeout_s=1) == found(desk)
    assert narrow.refused <= 5


async def test_an_empty_key_is_a_key(desk: Desk) -> None:
    desk.run("INSERT INTO images VALUES ('00000000', '')")
    assert ("00000000", "") in await all_rows(Narrow(desk, 250), IMAGES, "", timeout_s=1)


async def test_no_more_rows_are_asked_for_than_are_wanted(desk: Desk) -> None:
    narrow = Narrow(desk, 500)
    parts = [part async for part in pages(narrow, IMAGES, "00000000", timeout_s=1, most_rows=9)]
    rows = [row for part in parts for row in part]
    assert rows == [row for row in found(desk) if row[0] != "00000000"][:9] and len(parts) > 1


async def test_a_single_row_that_is_too_large_is_refused(desk: Desk) -> None:
    with pytest.raises(Unprocessable):
        await all_rows(Narrow(desk, 50), IMAGES, "", timeout_s=1)


async def test_a_page_is_far_below_the_bound_of_an_answer() -> None:
    assert module.PAGE_ROWS * 10 <= 100_000
