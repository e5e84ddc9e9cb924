"""The one writer thread: it takes every transaction that waits and commits them together. No SQL here.

Invariant: jobs are applied in the order they were submitted, and nobody hears of a job before its group is committed.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from hawker.errors import Unavailable
from hawker.store.contract import Durability, Tx

WAITING_LIMIT = 10_000  # transactions; beyond it the caller is told to come back
GROUP_LIMIT = 256  # transactions per commit, so that the first of a burst is not answered with its last


class Job:
    """One transaction on its way. The writer's thread fills in `result` or `error`; the loop's thread answers."""

    __slots__ = ("apply", "calls", "durability", "error", "future", "result")

    def __init__(self, apply: Callable[[Tx], Any], durability: Durability, future: asyncio.Future[Any]) -> None:
        self.apply = apply
        self.durability = durability
        self.future = future
        self.calls: list[Callable[[], None]] = []
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        """Answer the caller, in its loop's thread. Every call is made, even when one of them raises."""
        make_all(self.settling())

    def settling(self) -> Iterator[Callable[[], None]]:
        """The calls that `settle` makes: the caller is answered, then who listens hears of it."""
        yield self._answer
        if self.error is None:
            yield from self.calls

    def _answer(self) -> None:
        if self.future.done():  # the caller was cancelled meanwhile
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class StoreWriter:
    """Runs `commit` on groups of jobs in a thread of its own, `idle` after each group, `finish` at the end."""

    def __init__(
        self, commit: Callable[[list[Job]], None], idle: Callable[[], None], finish: Callable[[], None]
    ) -> None:
        self._commit = commit
        self._idle = idle
        self._finish = finish
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._closed = False
        self._thread = Thread(target=self._run, name="hawker-store", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    def submit(self, job: Job) -> None:
        """Queue a job for the writer. Raises `Unavailable` when the store is closed or too many jobs wait."""
        if self._closed:
            raise Unavailable("the store is closed")
        if self.waiting >= WAITING_LIMIT:
            raise Unavailable("the store has too many writes waiting")
        self._queue.put(job)

    def close(self) -> None:
        """Commit what waits, then end the thread. Blocks; safe to repeat."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while group := self._take():
            self._commit(group)
            _settle(group)
            self._idle()
        self._finish()

    def _take(self) -> list[Job]:
        """Every waiting job, at least one, up to the limit; none at the end."""
        group: list[Job] = []
        job = self._queue.get()
        while job is not None:
            group.append(job)
            if len(group) == GROUP_LIMIT:
                return group
            try:
                job = self._queue.get_nowait()
            except Empty:
                return group
        if group:
            self._queue.put(None)  # commit these first, then see the end again
        return group


def _settle(group: list[Job]) -> None:
    """One wake-up of the loop for the whole group; a group may hold callers of several loops only in tests."""
    for loop in {job.future.get_loop() for job in group}:
        mine = [job for job in group if job.future.get_loop() is loop]
        with suppress(RuntimeError):  # the loop was closed: nobody is left to hear
            loop.call_soon_threadsafe(_settle_all, mine)


def _settle_all(jobs: list[Job]) -> None:
    make_all(chain.from_iterable(job.settling() for job in jobs))


def make_all(calls: Iterator[Callable[[], None]]) -> None:
    """Every call is made, even when one of them raises."""
    try:
        for call in calls:
            call()
    except BaseException:
        make_all(calls)  # it goes on behind the one that raised
        raise
