from collections.abc import Iterator

import anyio
import pytest

from tests.waiting import eventually, wait_for

pytestmark = pytest.mark.anyio


def answers() -> Iterator[str]:
    yield from ("", "", "ready")


def test_the_first_true_answer_is_returned() -> None:
    given = answers()
    assert wait_for(lambda: next(given)) == "ready"


def test_a_deadline_shows_the_last_answer() -> None:
    with pytest.raises(TimeoutError, match=r"within 0\.02 s; last answer: \[\]"):
        wait_for(lambda: [], timeout_s=0.02)


async def test_a_plain_and_an_async_condition_are_waited_for() -> None:
    given = answers()

    async def ask() -> str:
        return next(given)

    assert await eventually(ask) == "ready"
    assert await eventually(lambda: 3) == 3


async def test_a_condition_that_hangs_is_held_to_the_deadline() -> None:
    with pytest.raises(TimeoutError):
        await eventually(anyio.sleep_forever, timeout_s=0.02)
