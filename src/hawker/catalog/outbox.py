"""Messages on their way out, at most so many bytes per second. What is too much waits; what waits too long, or is more
than the queue holds, goes, the oldest first: whoever misses it will find it missing.
"""

from collections import deque

from hawker.clock import Clock
from hawker.ids import NodeId
from hawker.token_bucket import Allowance, TokenBucket

BYTES_PER_S = 10 << 20
QUEUE_BYTES = 16 << 20


class Outbox:
    def __init__(self, clock: Clock, *, per_s: float = BYTES_PER_S, queue: int = QUEUE_BYTES) -> None:
        self._clock = clock
        self._bucket = TokenBucket(Allowance(per_s=per_s, burst=per_s))
        self._most = queue
        self._queue: deque[tuple[NodeId, bytes]] = deque()
        self.bytes = 0
        self.dropped = 0

    def put(self, to: NodeId, raw: bytes) -> None:
        self._queue.append((to, raw))
        self.bytes += len(raw)
        while self.bytes > self._most:
            self._shift()
            self.dropped += 1

    def take(self) -> list[tuple[NodeId, bytes]]:
        """What may go now."""
        found: list[tuple[NodeId, bytes]] = []
        while self._queue and self._bucket.take(len(self._queue[0][1]), self._clock.monotonic()):
            found.append(self._shift())
        return found

    def wait_s(self) -> float:
        """How long until more may go; endless with nothing waiting."""
        if not self._queue:
            return float("inf")
        return self._bucket.wait_s(len(self._queue[0][1]), self._clock.monotonic())

    def _shift(self) -> tuple[NodeId, bytes]:
        first = self._queue.popleft()
        self.bytes -= len(first[1])
        return first
