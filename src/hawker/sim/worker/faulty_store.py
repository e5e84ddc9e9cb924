"""The disk below a store: it can be slow, full or failing for a while, and stop for good after a chosen commit.

Keeps `store.contract.Store` over another store. What is committed is noted in the trace, value by value.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import TypeVar

import anyio

from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.sim.harness.trace import Speaker, Trace
from hawker.sim.node.store_over import StoreOver, TxOver
from hawker.store.codec import encode
from hawker.store.contract import Bucket, Durability, Store, Tx

T = TypeVar("T")
R = TypeVar("R")


class DiskFaults:
    """How the disk is now; it outlives the daemon. Times are the clock's monotonic ones. After `stops_in` more commits
    nobody hears from the store again; while it fails, every commit whose number is a multiple of `fails_every` does."""

    def __init__(self) -> None:
        self.slow_until = 0.0
        self.delay_s = 0.0
        self.full_until = 0.0
        self.failing_until = 0.0
        self.fails_every = 3
        self.asked = 0
        self.stops_in: int | None = None


class FaultyStore(StoreOver):
    """One life of a store on it. `touch` hears of each bucket and key that a commit changed, as `bucket/key`."""

    def __init__(
        self, inner: Store, clock: Clock, trace: Trace, disk_faults: DiskFaults, touch: Callable[[str], None]
    ) -> None:
        super().__init__(inner)
        self._touch = touch
        self._clock = clock
        self._trace = trace
        self._disk_faults = disk_faults
        self.commits = 0
        self.frozen = anyio.Event()

    async def write(self, apply: Callable[[Tx], R], durability: Durability = Durability.DURABLE) -> R:
        await self._wait_and_fail()

        def noted(tx: Tx) -> R:
            noting = _Noting(tx)
            result = apply(noting)
            self._fail_by_chance()
            tx.on_commit(lambda: self._committed(noting, durability))
            return result

        result = await self._inner.write(noted, durability)
        if self.frozen.is_set():
            await anyio.Event().wait()
        return result

    async def _wait_and_fail(self) -> None:
        disk_faults, now = self._disk_faults, self._clock.monotonic()
        if now < disk_faults.slow_until:
            await self._clock.sleep(disk_faults.delay_s)
        if self.frozen.is_set():
            await anyio.Event().wait()
        if self._clock.monotonic() < disk_faults.full_until:
            raise Unavailable("the store cannot be used now: database or disk is full")

    def _fail_by_chance(self) -> None:
        disk_faults = self._disk_faults
        if self._clock.monotonic() < disk_faults.failing_until:
            disk_faults.asked += 1
            if disk_faults.asked % disk_faults.fails_every == 0:
                raise Unavailable("the store cannot be used now: disk I/O error")

    def _committed(self, noting: "_Noting", durability: Durability) -> None:
        """Told in the loop, in the order of the commits. After the last one that is to be, nobody hears of it."""
        self.commits += 1
        what = f"{self.commits} {durability.value} {noting.digest()} {' '.join(noting.keys)}"
        for key in noting.keys:
            self._touch(key)
        self._trace.add(self._clock.monotonic(), Speaker.COMMIT, what.replace("\0", "/"))
        if self._disk_faults.stops_in is not None:
            self._disk_faults.stops_in -= 1
            if self._disk_faults.stops_in <= 0:
                self._disk_faults.stops_in = None
                self._trace.add(self._clock.monotonic(), Speaker.DAEMON, f"is killed at its commit {self.commits}")
                self.frozen.set()
        if not self.frozen.is_set():
            for call in noting.calls:
                call()


class _Noting(TxOver):
    """A transaction whose changes are noted."""

    def __init__(self, tx: Tx) -> None:
        super().__init__(tx)
        self._hash = blake2b(digest_size=6)
        self.keys: list[str] = []
        self.calls: list[Callable[[], None]] = []

    def digest(self) -> str:
        return self._hash.hexdigest()

    def put(self, bucket: Bucket[T], key: str, value: T) -> None:
        self._note(f"{bucket.name}/{key}", encode(value))
        self._tx.put(bucket, key, value)

    def delete(self, bucket: Bucket[T], key: str) -> None:
        self._note(f"-{bucket.name}/{key}", b"")
        self._tx.delete(bucket, key)

    def on_commit(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def _note(self, key: str, value: bytes) -> None:
        self.keys.append(key)
        self._hash.update(key.encode() + b"\0" + value + b"\0")
