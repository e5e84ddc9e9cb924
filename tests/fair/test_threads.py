import threading
from contextlib import ExitStack

import anyio
import pytest

from hawker.clock import ManualClock
from hawker.errors import Unavailable
from hawker.fair import threads
from hawker.fair.threads import Pool, PoolProbe, in_thread, on_behalf_of, turns_of, whose

pytestmark = pytest.mark.anyio


async def test_app_that_blocks_its_threads_of_a_pool_blocks_nobody_else() -> None:
    free, done = threading.Event(), []

    async def stuck() -> None:
        with on_behalf_of("alpha"):
            await in_thread(Pool.IMAGES, free.wait)

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(stuck)
        await anyio.wait_all_tasks_blocked()
        for key in ("beta", ""):
            with on_behalf_of(key), anyio.fail_after(5):
                done.append(await in_thread(Pool.IMAGES, whose))
        assert await in_thread(Pool.HOST, int) == 0
        free.set()
    assert done == ["beta", ""]


async def test_tasks_that_a_block_starts_count_where_it_counts() -> None:
    found: list[str] = []

    async def look() -> None:
        found.append(whose())

    async with anyio.create_task_group() as tasks:
        with on_behalf_of("alpha"):
            tasks.start_soon(look)
        tasks.start_soon(look)
    assert found == ["alpha", ""]


async def test_probe_names_the_pool_whose_threads_do_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PROBE_S", 0.05)
    clock = ManualClock()
    probe = PoolProbe(clock)
    await probe.check()
    with ExitStack() as stack:
        for _ in range(Pool.LOGS.value.total):
            stack.enter_context(turns_of(Pool.LOGS).hold_now(""))
        await probe.check()  # the last answer is young enough
        await clock.sleep(2)
        with pytest.raises(Unavailable, match="for threads: output of machines"):
            await probe.check()
    await clock.sleep(2)
    await probe.check()
