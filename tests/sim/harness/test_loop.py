import anyio
import pytest

from hawker.sim.harness.loop import LoopClock, VirtualTimeLoop, eventually

pytestmark = pytest.mark.anyio


async def test_an_hour_passes_at_once_and_in_order() -> None:
    clock, passed = LoopClock(), []

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        passed.append(seconds)

    began = clock.monotonic()
    async with anyio.create_task_group() as tasks:
        for seconds in (3600.0, 1.0, 60.0):
            tasks.start_soon(sleep, seconds)
    assert passed == [1.0, 60.0, 3600.0] and clock.monotonic() - began == 3600


async def test_the_wall_clock_can_be_set_and_nothing_else_moves() -> None:
    clock = LoopClock()
    now, since = clock.now(), clock.monotonic()
    clock.ahead_s -= 60
    assert clock.now() == now - 60 and clock.monotonic() == since


async def test_chance_repeats_with_the_seed() -> None:
    assert LoopClock(4).token_bytes(8) == LoopClock(4).token_bytes(8) != LoopClock(5).token_bytes(8)
    assert LoopClock(4).random() == LoopClock(4).random()


async def test_waiting_for_what_never_comes_says_so() -> None:
    clock = LoopClock()
    await eventually(clock, lambda: clock.monotonic() > 0, 5)
    with pytest.raises(TimeoutError, match="within 5 s"):
        await eventually(clock, lambda: False, 5, 1.0)


def test_a_loop_in_which_nothing_can_happen_does_not_hang() -> None:
    async def wait() -> None:
        await anyio.Event().wait()

    with pytest.raises(RuntimeError, match="waits for ever"):
        anyio.run(wait, backend_options={"loop_factory": lambda: VirtualTimeLoop(patience_s=0.01)})
