"""Slots that many want, given out fairly: so many in all, so many to each key, and keys take turns.

Whoever waits longest is not next: the key that had its turn longest ago is. So a key with a thousand waiting holds up
another one by a single turn. A part of the slots is for the node itself, whose key is `NODE`.
"""

from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio

from hawker.errors import OverShare
from hawker.value_object import ValueObject

NODE = ""
"""The key of the node's own work and of the operator's."""


class Share(ValueObject, frozen=True, kw_only=True):
    """Bounds of a shared resource: `total` slots at once, of which `each` for one key; `reserve` slots of the total are
    for the node itself and the operator's token. `waiting` tasks of one key may wait for their turn; one more is
    refused. `key` names the kind of owner of a part, `over` says what happens beyond the bounds."""

    name: str
    """The name of the shared resource, for people and metrics."""
    total: int
    each: int
    reserve: int = 0
    waiting: int = 0
    key: str
    over: str

    def __post_init__(self) -> None:
        assert 0 < self.each <= self.total - self.reserve, self.name


class _Waiter:
    def __init__(self) -> None:
        self.turn = anyio.Event()


class TurnsView(ValueObject, frozen=True, kw_only=True):
    """The use of a share now: slots in use, tasks that wait, keys that have or want slots."""

    share: Share
    used: int
    """Slots in use, 0 to the share's `total`."""
    waiting: int
    """Tasks of all keys together that wait for a slot, 0 or more."""
    keys: int
    """Keys that have a slot or wait for one, 0 or more."""


class Turns:
    """The slots of one share, given to keys in turn, for one event loop."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self._held: dict[str, int] = {}
        self._tenants = 0
        self._waiting: OrderedDict[str, deque[_Waiter]] = OrderedDict()  # the key whose turn it is first

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        """Take a slot as `take` does, and give it back with `give_back` at the end of the block."""
        await self.take(key)
        try:
            yield
        finally:
            self.give_back(key)

    @contextmanager
    def hold_now(self, key: str) -> Iterator[None]:
        """Take a slot at once, for the block. Raises `OverShare` instead of waiting."""
        if not self._fits(key):
            raise self._over(key)
        self._grant(key)
        try:
            yield
        finally:
            self.give_back(key)

    async def take(self, key: str) -> None:
        """Wait for a slot and take it. Raises `OverShare` when too many tasks of this key wait already."""
        if self._fits(key):
            self._grant(key)
            return
        queue = self._waiting.setdefault(key, deque())
        if len(queue) >= self.share.waiting:
            self._drop_empty(key)
            raise self._over(key)
        waiter = _Waiter()
        queue.append(waiter)
        try:
            await waiter.turn.wait()
        except BaseException:
            if waiter.turn.is_set():
                self.give_back(key)
            else:
                queue.remove(waiter)
                self._drop_empty(key)
            raise

    def give_back(self, key: str) -> None:
        left = self._held[key] - 1
        if left:
            self._held[key] = left
        else:
            del self._held[key]
        if key != NODE:
            self._tenants -= 1
        self._wake()

    @property
    def used(self) -> int:
        """Slots that are in use."""
        return self._tenants + self._held.get(NODE, 0)

    def view(self) -> TurnsView:
        waiting = sum(map(len, self._waiting.values()))
        keys = len(self._held.keys() | self._waiting.keys())
        return TurnsView(share=self.share, used=self.used, waiting=waiting, keys=keys)

    def _fits(self, key: str) -> bool:
        share = self.share
        if key == NODE:
            return self._tenants + self._held.get(NODE, 0) < share.total
        room = share.total - max(share.reserve, self._held.get(NODE, 0))
        return self._tenants < room and self._held.get(key, 0) < share.each

    def _grant(self, key: str) -> None:
        self._held[key] = self._held.get(key, 0) + 1
        if key != NODE:
            self._tenants += 1

    def _wake(self) -> None:
        """Those who can go on now, one of each key in turn."""
        while (key := next((key for key in self._waiting if self._fits(key)), None)) is not None:
            queue = self._waiting[key]
            waiter = queue.popleft()
            self._waiting.move_to_end(key)
            self._drop_empty(key)
            self._grant(key)
            waiter.turn.set()

    def _drop_empty(self, key: str) -> None:
        if not self._waiting[key]:
            del self._waiting[key]

    def _over(self, key: str) -> OverShare:
        return OverShare(f"{self.share.name}: {self.share.over} ({self.share.each} for one {self.share.key})")
