"""The writer's thread: groups, order, limits, and callers that are gone."""

import asyncio
import threading
from functools import partial

import anyio
import anyio.to_thread
import pytest

from hawker.errors import Conflict, Unavailable
from hawker.store.contract import Durability
from hawker.store.writer import GROUP_LIMIT, WAITING_LIMIT, Job, StoreWriter, make_all
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


class Bench:
    """A writer whose commits wait until they are let through."""

    def __init__(self) -> None:
        self.groups: list[list[Job]] = []
        self.gate = threading.Event()
        self.under_way = 0
        self.finished = False
        self.writer = StoreWriter(self.commit, lambda: None, self.finish)

    def commit(self, group: list[Job]) -> None:
        self.under_way += 1
        assert self.gate.wait(timeout=60)
        self.groups.append(group)
        for job in group:
            job.result = len(self.groups)

    def finish(self) -> None:
        self.finished = True

    def job(self) -> Job:
        job = Job(lambda tx: None, Durability.ORDERED, asyncio.get_running_loop().create_future())
        self.writer.submit(job)
        return job

    async def close(self) -> None:
        self.gate.set()
        await anyio.to_thread.run_sync(self.writer.close)


async def test_waiting_transactions_are_committed_together_and_in_order() -> None:
    bench = Bench()
    first = bench.job()
    await eventually(lambda: bench.under_way == 1)
    rest = [bench.job() for _ in range(10)]
    bench.gate.set()
    assert [await job.future for job in (first, *rest)] == [1] + [2] * 10
    assert bench.groups == [[first], rest]
    await bench.close()


async def test_a_group_has_a_limit() -> None:
    bench = Bench()
    first = bench.job()
    await eventually(lambda: bench.under_way == 1)
    rest = [bench.job() for _ in range(GROUP_LIMIT + 1)]
    bench.gate.set()
    assert [await job.future for job in (first, *rest)] == [1] + [2] * GROUP_LIMIT + [3]
    await bench.close()


async def test_a_caller_that_was_cancelled_does_not_disturb_the_others() -> None:
    bench = Bench()
    gone, stays = bench.job(), bench.job()
    gone.future.cancel()
    bench.gate.set()
    assert await stays.future >= 1
    await bench.close()


async def test_every_on_commit_call_is_made_even_when_one_raises() -> None:
    called: list[str] = []

    def broken() -> None:
        raise RuntimeError("a broken invariant")

    def note() -> None:
        called.append("second")

    loop, complaints = asyncio.get_running_loop(), list[str]()
    loop.set_exception_handler(lambda _, context: complaints.append(str(context["exception"])))
    bench = Bench()
    job, other = bench.job(), bench.job()
    job.calls += [broken, note]
    bench.gate.set()
    await other.future
    assert (called, complaints) == (["second"], ["a broken invariant"])
    await bench.close()


def test_every_call_is_made_though_many_raise_and_the_last_to_raise_tells_of_the_others() -> None:
    called: list[int] = []

    def call(number: int) -> None:
        called.append(number)
        if number in (1, 3):
            raise ValueError(f"from {number}")

    with pytest.raises(ValueError, match="from 3") as raised:
        make_all(partial(call, number) for number in range(5))
    assert called == [0, 1, 2, 3, 4] and str(raised.value.__context__) == "from 1"


async def test_an_error_is_raised_at_its_caller_and_its_calls_are_not_made() -> None:
    called: list[str] = []
    job = Job(lambda tx: None, Durability.ORDERED, asyncio.get_running_loop().create_future())
    job.calls.append(lambda: called.append("no"))
    job.error = Conflict("no")
    job.settle()
    with pytest.raises(Conflict):
        await job.future
    assert called == []


async def test_too_many_waiting_are_refused() -> None:
    bench = Bench()
    bench.job()
    await eventually(lambda: bench.under_way == 1)
    jobs = [bench.job() for _ in range(WAITING_LIMIT)]
    with pytest.raises(Unavailable, match="too many writes"):
        bench.job()
    await bench.close()
    assert all(job.result for job in jobs)


async def test_closing_commits_what_waits_and_refuses_what_comes_after() -> None:
    bench = Bench()
    jobs = [bench.job() for _ in range(3)]
    await bench.close()
    assert bench.finished and all(job.result for job in jobs)
    with pytest.raises(Unavailable, match="closed"):
        bench.job()
    bench.writer.close()
