"""A feed: events that many listeners hear, each from where it joined, kept in one ring that all of them share.

A listener that falls out of the ring was too slow. A subscription is a feed, and so are the updates of a table.
"""

from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import anyio

from hawker.clock import Clock
from hawker.value_object import ValueObject

RING_EVENTS = 10_240
RING_BYTES = 16 * 1024 * 1024
PORTION_BYTES = 64 * 1024


class Lagged(Exception):
    """This listener missed events."""


class FeedEvent(ValueObject, frozen=True):
    """One event: `line` as it is sent, `content` as a value."""

    content: object
    line: bytes


class Ring:
    """Numbers count events without gaps, the first one is `first`."""

    def __init__(self, first: int, *, events: int = RING_EVENTS, size_bytes: int = RING_BYTES) -> None:
        self._events: deque[FeedEvent] = deque()
        self._next, self._size = first, 0
        self._most, self._most_bytes = events, size_bytes

    @property
    def next(self) -> int:
        """The number that the next event will have."""
        return self._next

    def put(self, events: FeedEvent) -> None:
        self._events.append(events)
        self._next += 1
        self._size += len(events.line)
        while len(self._events) > self._most or (self._size > self._most_bytes and len(self._events) > 1):
            self._size -= len(self._events.popleft().line)

    def beyond(self, number: int, most: int) -> list[FeedEvent]:
        """The events from `number` on, at most so many, few if they are long. Raises `Lagged` when some are gone."""
        oldest = self._next - len(self._events)
        if number < oldest:
            raise Lagged
        portion: list[FeedEvent] = []
        size = 0
        for events in islice(self._events, number - oldest, number - oldest + most):
            portion.append(events)
            size += len(events.line)
            if size >= PORTION_BYTES:
                break
        return portion


# The last events of one feed, shared by all who listen to it: a listener that falls out of it was too slow.

_PORTION = 256


class Feed:
    """`idle_since` is when the last listener left, by the monotonic clock; None while somebody listens."""

    def __init__(
        self, clock: Clock, first: int = 1, *, events: int = RING_EVENTS, size_bytes: int = RING_BYTES
    ) -> None:
        self._clock = clock
        self._ring = Ring(first, events=events, size_bytes=size_bytes)
        self._news = anyio.Event()
        self._listeners = 0
        self._ended: FeedEvent | None = None
        self._closed = False
        self.idle_since: float | None = clock.monotonic()

    @property
    def next(self) -> int:
        return self._ring.next

    @property
    def closed(self) -> bool:
        return self._closed

    def tell(self, events: Sequence[FeedEvent]) -> None:
        for event in events:
            self._ring.put(event)
        if events:
            self._wake()

    def end(self, last: FeedEvent | None) -> None:
        """Ends the feed. Nothing comes after `last`; without one, listeners are just let go."""
        self._ended, self._closed = last, True
        self._wake()

    def touch(self) -> None:
        """Takes note that somebody is about to listen."""
        if self.idle_since is not None:
            self.idle_since = self._clock.monotonic()

    def idle_for(self, now: float) -> float:
        return 0.0 if self.idle_since is None else now - self.idle_since

    @contextmanager
    def listener(self) -> Iterator[None]:
        """Counts a listener for as long as somebody listens."""
        self._listeners += 1
        self.idle_since = None
        try:
            yield
        finally:
            self._listeners -= 1
            if not self._listeners:
                self.idle_since = self._clock.monotonic()

    async def events(self, number: int) -> AsyncGenerator[list[FeedEvent], None]:
        """All events from `number` on, in portions. Raises `Lagged` when the caller was too slow."""
        while True:
            news = self._news
            portion = self._ring.beyond(number, _PORTION)
            if portion:
                number += len(portion)
                yield portion
            elif self._closed:
                if self._ended is not None:
                    yield [self._ended]
                return
            else:
                await news.wait()

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()
