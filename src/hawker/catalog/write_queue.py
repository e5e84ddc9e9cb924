"""The queue before the storage's one thread: calls wait here for their turn, in their order, bounded in number.

Group commit: transactions that follow each other in the queue become one transaction of the database, so that they
share what takes longest, the wait for the disk.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Generic, TypeVar

import anyio

from hawker.catalog.contract import Committed, LocalTransaction, Storage
from hawker.errors import HawkerError, Unavailable

T = TypeVar("T")

MAX_WAITING = 1024
"""Calls that may wait; one more is refused."""
GROUP_CALLS = 128
"""Calls that one turn takes, so that replication gets the thread in between."""
STOPPING = "the catalog is stopping; try again once the node is up"


class QueuedCall(Generic[T]):
    """A call and its result. `work` runs in the storage's thread; `after` is called with the result in the event loop
    when `work` succeeded, even if the caller no longer waits."""

    def __init__(self, work: Callable[[], T], after: Callable[[T], None] = lambda result: None) -> None:
        self.work, self.after = work, after
        self.done = anyio.Event()
        self.ran = False
        self.result: T | None = None
        self.error: HawkerError | None = None

    def run(self) -> None:
        try:
            self.ended(self.work())
        except HawkerError as error:
            self.error = error

    def ended(self, result: T | HawkerError) -> None:
        """Record the result or the error, in the storage's thread."""
        if isinstance(result, HawkerError):
            self.error = result
        else:
            self.result, self.ran = result, True

    def end(self) -> None:
        """Wake who waits, in the event loop. A call that was taken and never ran was cut off by the end of the node."""
        if self.error is None and not self.ran:
            self.error = Unavailable(STOPPING)
        if self.error is None:
            self.after(self.result)  # type: ignore[arg-type]
        self.done.set()

    async def wait(self) -> T:
        """The result. Raises the `HawkerError` that `work` raised, `Unavailable` when the catalog stopped first."""
        await self.done.wait()
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]


class QueuedTransaction(QueuedCall[Committed]):
    """A local transaction. Those that stand beside each other in a turn are committed as one group."""

    def __init__(self, storage: Storage, local: LocalTransaction, after: Callable[[Committed], None]) -> None:
        super().__init__(lambda: storage.commit(local.statements, local.at, timeout_s=local.timeout_s), after)
        self.storage, self.local = storage, local


class WriteQueue:
    """First in, first out. Used in the event loop only."""

    def __init__(self) -> None:
        self._waiting: deque[QueuedCall[Any]] = deque()

    def put(self, call: QueuedCall[Any]) -> None:
        """Puts a call into the queue. Raises `Unavailable` when `MAX_WAITING` calls wait already."""
        if len(self._waiting) >= MAX_WAITING:
            raise Unavailable(f"{MAX_WAITING} calls of the catalog wait already; try again in a moment")
        self._waiting.append(call)

    def take(self) -> list[QueuedCall[Any]]:
        """The calls of the next turn, none when nothing waits. The caller runs them and then ends each."""
        return [self._waiting.popleft() for _ in range(min(GROUP_CALLS, len(self._waiting)))]

    def stop(self) -> None:
        """Refuse all that wait with `Unavailable`."""
        for call in self._waiting:
            call.error = Unavailable(STOPPING)
            call.done.set()


def run_all(calls: Iterable[QueuedCall[Any]]) -> None:
    """Run the calls in their order, in the storage's thread. Raises nothing: each call keeps its own error."""
    for together, run in groupby(calls, key=lambda call: isinstance(call, QueuedTransaction)):
        if together:
            _commit([call for call in run if isinstance(call, QueuedTransaction)])
        else:
            for call in run:
                call.run()


def _commit(calls: Sequence[QueuedTransaction]) -> None:
    try:
        results = calls[0].storage.commit_all([call.local for call in calls])
    except HawkerError as error:
        results = [error] * len(calls)
    for call, result in zip(calls, results, strict=True):
        call.ended(result)
