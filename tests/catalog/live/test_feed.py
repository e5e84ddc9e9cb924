import anyio
import pytest

from hawker.catalog.live.feed import Feed, FeedEvent, Lagged, Ring
from hawker.clock import ManualClock

pytestmark = pytest.mark.anyio


def _told(*lines: bytes) -> list[FeedEvent]:
    return [FeedEvent(line, line) for line in lines]


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
        feed.end(FeedEvent("over", b"over"))
    assert heard == {1: [b"1", b"2", b"3", b"over"], 2: [b"2", b"3", b"over"], 3: [b"3", b"over"]}


async def test_slow_listener_is_cut_off() -> None:
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


def _put(ring: Ring, *lines: bytes) -> None:
    for line in lines:
        ring.put(FeedEvent(line, line))


def _lines(told: list[FeedEvent]) -> list[bytes]:
    return [one.line for one in told]


def test_events_from_where_one_joined() -> None:
    ring = Ring(5)
    _put(ring, b"a", b"b", b"c")
    assert ring.next == 8
    assert _lines(ring.beyond(5, 10)) == [b"a", b"b", b"c"]
    assert _lines(ring.beyond(6, 1)) == [b"b"]
    assert ring.beyond(8, 10) == []
    assert ring.beyond(100, 10) == []


def test_listener_that_falls_out_of_the_ring_is_told() -> None:
    ring = Ring(1, events=2)
    _put(ring, b"a", b"b", b"c")
    assert _lines(ring.beyond(2, 10)) == [b"b", b"c"]
    with pytest.raises(Lagged):
        ring.beyond(1, 10)


def test_bytes_are_bounded_too_but_one_event_stays() -> None:
    ring = Ring(1, size_bytes=10)
    _put(ring, b"x" * 6, b"y" * 6)
    assert _lines(ring.beyond(2, 10)) == [b"y" * 6]
    _put(ring, b"z" * 50)
    assert _lines(ring.beyond(3, 10)) == [b"z" * 50]
