"""A feed: events that many may hear, from where each joined. A subscription is one, so are the updates of a table."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager

import anyio

from hawker.catalog.live.ring import RING_BYTES, RING_EVENTS, Ring, Told
from hawker.clock import Clock

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
        self._ended: Told | None = None
        self._closed = False
        self.idle_since: float | None = clock.monotonic()

    @property
    def next(self) -> int:
        return self._ring.next

    @property
    def closed(self) -> bool:
        return self._closed

    def tell(self, events: Sequence[Told]) -> None:
        for event in events:
            self._ring.put(event)
        if events:
            self._wake()

    def end(self, last: Told | None) -> None:
        """Nothing comes after `last`; without one, listeners are just let go."""
        self._ended, self._closed = last, True
        self._wake()

    def touch(self) -> None:
        """Somebody is about to listen."""
        if self.idle_since is not None:
            self.idle_since = self._clock.monotonic()

    def idle_for(self, now: float) -> float:
        return 0.0 if self.idle_since is None else now - self.idle_since

    @contextmanager
    def listener(self) -> Iterator[None]:
        """For as long as somebody listens."""
        self._listeners += 1
        self.idle_since = None
        try:
            yield
        finally:
            self._listeners -= 1
            if not self._listeners:
                self.idle_since = self._clock.monotonic()

    async def events(self, number: int) -> AsyncGenerator[list[Told], None]:
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
