from pathlib import Path

import pytest

from hawker.clock import Clock, ManualClock, PooledClock, ShiftedClock, SystemClock, system_clock

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock(), PooledClock()], ids=["system", "manual", "pooled"])
async def test_every_clock_tells_time_and_chance(clock: Clock) -> None:
    before = clock.monotonic()
    await clock.sleep(0.001)
    assert clock.monotonic() >= before + 0.001 and clock.now() > 1_600_000_000
    assert 0 <= clock.random() < 1
    assert len(clock.token_bytes(7)) == 7 and clock.token_bytes(16) != clock.token_bytes(16)


def test_no_byte_of_a_pool_is_given_twice() -> None:
    clock = PooledClock()
    drawn = [clock.token_bytes(count) for _ in range(1000) for count in (10, 16)]
    assert len(set(drawn)) == 2000 and len(clock.token_bytes(10_000)) == 10_000
    assert [len(each) for each in drawn] == [10, 16] * 1000


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


def test_a_daemon_has_the_host_clock_unless_a_test_moves_it(tmp_path: Path) -> None:
    assert type(system_clock({})) is SystemClock
    assert type(system_clock({"HAWKER_CLOCK_OFFSET_FILE": ""})) is SystemClock
    assert type(system_clock({"HAWKER_CLOCK_OFFSET_FILE": str(tmp_path / "offset")})) is ShiftedClock


def test_a_shifted_clock_jumps_when_its_file_says_so_and_never_its_monotonic_time(tmp_path: Path) -> None:
    offset, host = tmp_path / "offset", SystemClock()
    clock = ShiftedClock(offset)
    assert abs(clock.now() - host.now()) < 60
    for text, seconds in (("86400", 86_400.0), ("-7200.5", -7_200.5), ("no number", 0.0)):
        offset.write_text(text)
        assert abs(clock.now() - host.now() - seconds) < 60
        assert abs(clock.monotonic() - host.monotonic()) < 60
