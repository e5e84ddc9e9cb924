"""Calls of the storage that wait for their turn. Transactions that follow each other become one of the database, so
that they share what takes longest: the wait for the disk.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Generic, TypeVar

import anyio

from hawker.catalog.contract import Committed, LocalTransaction, Storage
from hawker.errors import HawkerError, Unavailable

T = TypeVar("T")

GROUP_CALLS = 128
STOPPING = "the catalog is stopping; try again once the node is up"


class QueuedCall(Generic[T]):
    """A call, and what came of it. `after` is called in the event loop once it went well, whether somebody still waits
    for it or not."""

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
        """What it came to, in the storage's thread."""
        if isinstance(result, HawkerError):
            self.error = result
        else:
            self.result, self.ran = result, True

    def end(self) -> None:
        if self.error is None and not self.ran:
            self.error = Unavailable(STOPPING)  # its turn had come, and was called off
        if self.error is None:
            self.after(self.result)  # type: ignore[arg-type]
        self.done.set()

    async def wait(self) -> T:
        await self.done.wait()
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value]


class QueuedTransaction(QueuedCall[Committed]):
    """A local transaction."""

    def __init__(self, storage: Storage, local: LocalTransaction, after: Callable[[Committed], None]) -> None:
        super().__init__(lambda: storage.commit(local.statements, local.at, timeout_s=local.timeout_s), after)
        self.storage, self.local = storage, local


def next_turn(waiting: deque[QueuedCall[Any]]) -> list[QueuedCall[Any]]:
    """Takes those that are run at once."""
    return [waiting.popleft() for _ in range(min(GROUP_CALLS, len(waiting)))]


def run_all(calls: Iterable[QueuedCall[Any]]) -> None:
    """In their order, in the storage's thread."""
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
