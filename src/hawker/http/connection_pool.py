"""Which connection a request takes, and which request waits for one. Pure: a connection and a waiter are any objects
that can be hashed, `now` is in seconds and comes from outside, and nothing here opens, closes or waits.

A request begins with `enter`, or with `queue` when that refuses, and ends with `leave`. In between it may `take` an
idle connection and `put` it back.
"""

from collections import deque
from typing import Generic, TypeVar

C = TypeVar("C")  # a connection
W = TypeVar("W")  # a waiting request


class ConnectionPool(Generic[C, W]):
    """At most `max_in_use` requests are under way at once (0 or more; 0 is no limit); the others wait, first come,
    first served. A connection that was idle for `max_idle_s` seconds is not used again."""

    def __init__(self, *, max_in_use: int, max_idle_s: float) -> None:
        self._max_in_use = max_in_use
        self._max_idle_s = max_idle_s
        self._in_use = 0
        self._idle: dict[C, float] = {}  # when it was put back, the least recent first
        self._waiting: deque[W] = deque()

    def enter(self) -> bool:
        """Begin a request. False when it has to wait: nothing has changed then."""
        if self._max_in_use and self._in_use >= self._max_in_use:
            return False
        self._in_use += 1
        return True

    def queue(self, waiter: W) -> None:
        """Wait for a turn. `leave` or `abandon` returns the waiter when its turn has come: it has entered then."""
        self._waiting.append(waiter)

    def leave(self) -> W | None:
        """End a request. Returns the waiter whose turn it is now."""
        if self._waiting:
            return self._waiting.popleft()
        self._in_use -= 1
        return None

    def abandon(self, waiter: W) -> W | None:
        """Give up waiting. Returns the waiter that takes the turn instead, if the turn had come already."""
        try:
            self._waiting.remove(waiter)
        except ValueError:
            return self.leave()
        return None

    def take(self) -> C | None:
        """The idle connection that was used last. Call `expire` first."""
        return self._idle.popitem()[0] if self._idle else None

    def put(self, connection: C, now: float) -> None:
        """Keep an open connection for the next request."""
        self._idle[connection] = now

    def discard(self, connection: C) -> None:
        """Forget a connection that was closed; no change if it is not idle."""
        self._idle.pop(connection, None)

    def expire(self, now: float) -> list[C]:
        """Forget the connections that were idle for too long, and return them to be closed."""
        expired = []
        for connection, since in self._idle.items():
            if now - since < self._max_idle_s:
                break
            expired.append(connection)
        for connection in expired:
            del self._idle[connection]
        return expired

    def clear(self) -> list[C]:
        """Forget all idle connections, and return them to be closed."""
        idle = list(self._idle)
        self._idle.clear()
        return idle
