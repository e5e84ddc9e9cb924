"""Waiting for one's turn, and not for ever."""

import pytest

from hawker.api.retry import WITHIN_S, RateLimitRetry
from hawker.clock import ManualClock
from hawker.errors import Conflict, RateLimited

pytestmark = pytest.mark.anyio


class Node:
    """Refuses until a moment."""

    def __init__(self, clock: ManualClock, until: float) -> None:
        self.clock, self.until, self.asked = clock, clock.monotonic() + until, list[float]()

    async def answer(self) -> str:
        self.asked.append(self.clock.monotonic())
        if self.clock.monotonic() < self.until:
            raise RateLimited("rate limit exceeded")
        return "done"


async def test_a_call_is_made_again_until_it_is_its_turn() -> None:
    clock = ManualClock()
    node = Node(clock, 10.0)
    assert await RateLimitRetry(clock)(node.answer) == "done"
    assert clock.monotonic() - node.until < 4.6


async def test_pauses_grow_and_stay_short() -> None:
    clock = ManualClock()
    node = Node(clock, 60.0)
    await RateLimitRetry(clock)(node.answer)
    pauses = [after - before for before, after in zip(node.asked, node.asked[1:], strict=False)]
    assert 0.2 <= pauses[0] <= 0.6 and max(pauses) <= 4.5 and min(pauses[6:]) >= 1.5


async def test_two_that_begin_together_do_not_stay_together() -> None:
    moments = []
    for seed in (1, 2):
        clock = ManualClock(seed=seed)
        node = Node(clock, 10.0)
        await RateLimitRetry(clock)(node.answer)
        moments.append(node.asked[1:])
    assert not set(moments[0]) & set(moments[1])


async def test_it_gives_up_in_the_end() -> None:
    clock = ManualClock()
    node = Node(clock, 1e9)
    with pytest.raises(RateLimited):
        await RateLimitRetry(clock)(node.answer)
    assert WITHIN_S - 5 < node.asked[-1] - node.asked[0] <= WITHIN_S


async def test_any_other_error_is_the_callers_at_once() -> None:
    clock = ManualClock()
    asked = []

    async def held() -> None:
        asked.append(1)
        raise Conflict("lease")

    with pytest.raises(Conflict):
        await RateLimitRetry(clock)(held)
    assert asked == [1]
