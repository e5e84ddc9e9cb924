"""Facts about trying again."""

import pytest

from hawker.clock import ManualClock
from hawker.errors import Unavailable
from hawker.image.retry import TryLater, persist

pytestmark = pytest.mark.anyio


class Flaky:
    """Fails with each error in turn, then answers."""

    def __init__(self, *errors: TryLater) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


async def test_answer_comes_after_failures() -> None:
    flaky = Flaky(*[TryLater("down")] * 4)
    assert await persist(ManualClock(), "asking", flaky) == "answer"
    assert flaky.calls == 5


async def test_fifth_failure_in_a_row_is_the_last() -> None:
    flaky = Flaky(*[TryLater("down")] * 9)
    with pytest.raises(Unavailable, match="asking: down"):
        await persist(ManualClock(), "asking", flaky)
    assert flaky.calls == 5


async def test_progress_counts_anew() -> None:
    flaky = Flaky(*[TryLater("cut", progressed=True)] * 20)
    assert await persist(ManualClock(), "asking", flaky) == "answer"


async def test_waits_grow_and_are_as_long_as_asked_within_reason() -> None:
    clock = ManualClock()
    began = clock.now()
    await persist(clock, "asking", Flaky(TryLater("busy", after_s=4)))
    assert 3 <= clock.now() - began <= 4
    began = clock.now()
    await persist(clock, "asking", Flaky(TryLater("busy", after_s=100_000)))
    assert clock.now() - began <= 15
    began = clock.now()
    await persist(clock, "asking", Flaky(*[TryLater("down")] * 4))
    assert 0.75 * 4.5 <= clock.now() - began <= 4.5
