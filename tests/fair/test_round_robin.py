"""Requests come in by turns of the event loop, one of each address."""

from functools import partial

import anyio
import pytest
from anyio.lowlevel import checkpoint

from hawker.fair.round_robin import RoundRobin

pytestmark = pytest.mark.anyio


async def test_an_address_with_many_delays_another_by_a_turn() -> None:
    entrance, came = RoundRobin(), list[str]()

    async def come(key: str) -> None:
        await entrance.come_in(key)
        came.append(key)

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(come, "many")
        tasks.start_soon(come, "one")
    assert came.index("one") <= 2
    assert came.count("many") == 100


async def test_a_first_comer_is_first_of_its_address() -> None:
    entrance, came = RoundRobin(), list[int]()

    async def come(number: int) -> None:
        await entrance.come_in("a")
        came.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(come, number)
    assert came == list(range(20))


async def test_one_that_went_away_is_passed_over() -> None:
    entrance, came = RoundRobin(), list[int]()

    async def come(number: int) -> None:
        await entrance.come_in("a")
        came.append(number)

    async with anyio.create_task_group() as gone:
        for number in range(50):
            gone.start_soon(come, number)
        await checkpoint()
        assert entrance.waiting > 0
        gone.cancel_scope.cancel()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(come, 7)
    assert came[-1] == 7
    assert len(came) < 50
    assert entrance.waiting == 0


async def test_a_request_alone_does_not_wait() -> None:
    entrance = RoundRobin()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await entrance.come_in("a")  # a cancelled task that had to wait would not come here
        await entrance.come_in("b")
        scope.shield = True
    assert not scope.cancelled_caught
    await checkpoint()


async def test_many_of_an_address_may_come_in_at_once() -> None:
    entrance = RoundRobin(at_once=3)
    with anyio.CancelScope() as scope:
        scope.cancel()
        for _ in range(3):
            await entrance.come_in("a")
        scope.shield = True
    assert not scope.cancelled_caught


async def test_a_turn_that_is_asked_for_comes_in_its_turn_and_never_when_it_is_cancelled() -> None:
    entrance, came = RoundRobin(), list[str]()

    def note(what: str, turn: object) -> None:
        came.append(what)

    for number in range(5):
        entrance.next_turn("many").add_done_callback(partial(note, f"many {number}"))
    gone = entrance.next_turn("one")
    entrance.next_turn("one").add_done_callback(partial(note, "one"))
    gone.cancel()
    while len(came) < 6:
        await checkpoint()
    assert came[:2] == ["many 0", "one"] and came[-1] == "many 4" and not entrance.waiting
