import threading
from contextlib import ExitStack
from functools import partial

import anyio
import pytest

from hawker.clock import ManualClock
from hawker.errors import Unavailable
from hawker.fair import threads
from hawker.fair.threads import Pool, PoolProbe, in_thread, in_thread_with_rests, on_behalf_of, turns_of, whose
from hawker.fair.turns import NODE
from tests.waiting import eventually

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
            with on_behalf_of(key), anyio.fail_after(60):
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
    monkeypatch.setattr(threads, "PROBE_S", 60.0)  # on a busy host a thread may begin late
    clock = ManualClock()
    probe = PoolProbe(clock)
    await probe.check()
    with ExitStack() as stack:
        for _ in range(Pool.LOGS.value.total):
            stack.enter_context(turns_of(Pool.LOGS).hold_now(""))
        await probe.check()  # the last answer is young enough
        await clock.sleep(2)
        monkeypatch.setattr(threads, "PROBE_S", 0.05)
        with pytest.raises(Unavailable, match="threads: output of machines"):
            await probe.check()
    monkeypatch.setattr(threads, "PROBE_S", 60.0)
    await clock.sleep(2)
    await probe.check()


async def test_an_owner_that_rests_holds_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "RESTS", 1e9)
    monkeypatch.setattr(threads, "LONGEST_REST_S", 60.0)
    async with anyio.create_task_group() as tasks:
        for number in range(8):
            with on_behalf_of(f"tired-{number}"):
                await in_thread_with_rests(Pool.BODIES, sum, range(10))
                tasks.start_soon(partial(in_thread_with_rests, Pool.BODIES, sum, range(10)))
        await anyio.wait_all_tasks_blocked()
        with on_behalf_of("lively"), anyio.fail_after(30):
            assert await in_thread_with_rests(Pool.BODIES, sum, range(3)) == 3
        tasks.cancel_scope.cancel()


async def test_an_owner_rests_after_work_that_keeps_the_interpreter_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "RESTS", 1e9)
    monkeypatch.setattr(threads, "LONGEST_REST_S", 600.0)
    ended: list[str] = []

    async def work(owner: str) -> None:
        with on_behalf_of(owner):
            await in_thread_with_rests(Pool.BODIES, sum, range(1000))
        ended.append(owner)

    await work("loud")
    async with anyio.create_task_group() as tasks:
        for owner in ("loud", "quiet", "calm", NODE, NODE):
            tasks.start_soon(work, owner)
        await eventually(lambda: len(ended) == 5)
        tasks.cancel_scope.cancel()
    assert sorted(ended[1:]) == sorted(("quiet", "calm", NODE, NODE))
    monkeypatch.setattr(threads, "LONGEST_REST_S", 0.5)
    began = anyio.current_time()
    await work("another")
    await work("another")
    assert anyio.current_time() >= began + 0.5
