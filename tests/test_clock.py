import pytest

from hawker.clock import Clock, ManualClock, SystemClock

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()], ids=["system", "manual"])
async def test_every_clock_tells_time_and_chance(clock: Clock) -> None:
    before = clock.monotonic()
    await clock.sleep(0.001)
    assert clock.monotonic() >= before + 0.001 and clock.now() > 1_600_000_000
    assert 0 <= clock.random() < 1
    assert len(clock.token_bytes(7)) == 7 and clock.token_bytes(16) != clock.token_bytes(16)


async def test_sleeping_moves_a_manual_clock_at_once() -> None:
    clock = ManualClock(start=1000.0)
    await clock.sleep(3600)
    clock.advance(1)
    assert clock.now() == clock.monotonic() == 4601.0


async def test_a_negative_sleep_does_not_turn_a_manual_clock_back() -> None:
    clock = ManualClock(start=1000.0)
    await clock.sleep(-5)
    assert clock.now() == 1000.0


def test_the_same_seed_gives_the_same_chance() -> None:
    one, other = ManualClock(seed=7), ManualClock(seed=7)
    assert [one.random() for _ in range(5)] == [other.random() for _ in range(5)]
    assert one.token_bytes(8) == other.token_bytes(8) != ManualClock(seed=8).token_bytes(8)
