import anyio
import pytest

from hawker.catalog.live.feed import Feed
from hawker.catalog.live.ring import Lagged, Told
from hawker.clock import ManualClock

pytestmark = pytest.mark.anyio


def _told(*lines: bytes) -> list[Told]:
    return [Told(line, line) for line in lines]


async def test_all_hear_the_same_from_where_they_joined() -> None:
    feed = Feed(ManualClock())
    feed.tell(_told(b"1", b"2"))
    heard: dict[int, list[bytes]] = {1: [], 2: [], 3: []}

    async def listen(start: int) -> None:
        async for portion in feed.events(start):
            heard[start] += [one.line for one in portion]

    async with anyio.create_task_group() as group:
        for start in heard:
            group.start_soon(listen, start)
        await anyio.wait_all_tasks_blocked()
        feed.tell(_told(b"3"))
        await anyio.wait_all_tasks_blocked()
        feed.end(Told("over", b"over"))
    assert heard == {1: [b"1", b"2", b"3", b"over"], 2: [b"2", b"3", b"over"], 3: [b"3", b"over"]}


async def test_who_is_too_slow_is_cut_off() -> None:
    feed = Feed(ManualClock(), events=3)
    events = feed.events(1)
    feed.tell(_told(b"1"))
    assert len(await anext(events)) == 1
    feed.tell(_told(b"2", b"3", b"4", b"5"))
    with pytest.raises(Lagged):
        await anext(events)


async def test_idle_is_who_has_no_listener() -> None:
    clock = ManualClock()
    feed = Feed(clock)
    clock.advance(5)
    assert feed.idle_for(clock.monotonic()) == 5
    feed.touch()
    assert feed.idle_for(clock.monotonic()) == 0
    with feed.listener(), feed.listener():
        clock.advance(100)
        feed.touch()
        assert feed.idle_for(clock.monotonic()) == 0
    clock.advance(7)
    assert feed.idle_for(clock.monotonic()) == 7


async def test_an_end_without_words() -> None:
    feed = Feed(ManualClock())
    feed.end(None)
    assert feed.closed
    assert [portion async for portion in feed.events(1)] == []
