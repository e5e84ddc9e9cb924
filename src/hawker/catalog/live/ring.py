"""The last events of one feed, shared by all who listen to it: a listener that falls out of it was too slow."""

from collections import deque
from dataclasses import dataclass
from itertools import islice

RING_EVENTS = 10_240
RING_BYTES = 16 * 1024 * 1024
PORTION_BYTES = 64 * 1024


class Lagged(Exception):
    """This listener missed events."""


@dataclass(frozen=True, slots=True)
class Told:
    """`line` is the event as it is sent, `said` what it tells."""

    said: object
    line: bytes


class Ring:
    """Numbers count events without gaps, the first one is `first`."""

    def __init__(self, first: int, *, events: int = RING_EVENTS, size_bytes: int = RING_BYTES) -> None:
        self._events: deque[Told] = deque()
        self._next, self._size = first, 0
        self._most, self._most_bytes = events, size_bytes

    @property
    def next(self) -> int:
        """The number that the next event will have."""
        return self._next

    def put(self, told: Told) -> None:
        self._events.append(told)
        self._next += 1
        self._size += len(told.line)
        while len(self._events) > self._most or (self._size > self._most_bytes and len(self._events) > 1):
            self._size -= len(self._events.popleft().line)

    def beyond(self, number: int, most: int) -> list[Told]:
        """The events from `number` on, at most so many, few if they are long. Raises `Lagged` when some are gone."""
        oldest = self._next - len(self._events)
        if number < oldest:
            raise Lagged
        portion: list[Told] = []
        size = 0
        for told in islice(self._events, number - oldest, number - oldest + most):
            portion.append(told)
            size += len(told.line)
            if size >= PORTION_BYTES:
                break
        return portion
