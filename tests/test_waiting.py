import os
from collections.abc import Iterator

import anyio
import pytest

from tests.waiting import eventually, is_readable, wait_for

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


def test_a_descriptor_is_readable_once_there_is_something_or_its_end() -> None:
    reads, writes = os.pipe()
    assert not is_readable(reads, 0.01)
    os.write(writes, b"x")
    assert is_readable(reads, 60) and os.read(reads, 1)
    os.close(writes)
    assert is_readable(reads, 60)
    os.close(reads)
