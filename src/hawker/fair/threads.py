"""Work in threads, in a pool for each kind of work: no kind, and nobody's work of one kind, can take the last thread.

Whose work it is follows the task: the API names the app of a call, the flow engine the owner of a run. What nobody
named is the node's own.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import TypeVar, TypeVarTuple, Unpack

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.fair.turns import NODE, Share, Turns

T = TypeVar("T")
A = TypeVarTuple("A")

_WAITING = 10_000  # tasks, each of which a call or a run has begun: those are bounded where they begin
_REST = 40  # threads for what libraries run in the loop's own pool


def _pool(name: str, total: int, each: int, reserve: int) -> Share:
    over = "it waits for its turn"
    return Share(
        name=f"threads: {name}", total=total, each=each, reserve=reserve, waiting=_WAITING, key="owner", over=over
    )


class Pool(Enum):
    """The kinds of work."""

    HOST = _pool("host work", 40, 24, 8)
    DISKS = _pool("volumes and snapshots", 12, 6, 2)
    IMAGES = _pool("images", 16, 8, 2)
    LOGS = _pool("output of machines", 6, 2, 1)
    QUERIES = _pool("queries", 6, 2, 2)
    PAGES = _pool("pages of metrics", 3, 1, 1)
    NAMES = _pool("names of registries and hosts", 8, 2, 1)
    REPLICA = _pool("catalog", 6, 2, 2)
    BODIES = _pool("large bodies", 4, 1, 1)
    ARCHIVE = _pool("histories", 4, 2, 1)


_pools: RunVar[dict[Pool, Turns]] = RunVar("hawker thread pools")
_whose: ContextVar[str] = ContextVar("whose share the work counts in", default=NODE)


def turns_of(pool: Pool) -> Turns:
    """The turns of this pool, for the running event loop."""
    try:
        return _pools.get()[pool]
    except LookupError:
        limiter = anyio.to_thread.current_default_thread_limiter()
        limiter.total_tokens = _REST + sum(each.value.total for each in Pool)
        _pools.set({each: Turns(each.value) for each in Pool})
        return _pools.get()[pool]


def at_work() -> bool:
    """Whether a thread of any pool works for the running event loop."""
    try:
        pools = _pools.get()
    except LookupError:
        return False
    return any(turns.used for turns in pools.values())


async def in_thread(pool: Pool, call: Callable[[Unpack[A]], T], *args: *A) -> T:
    """Returns what `call` returns, called in a thread of the pool. A call that has begun comes to its end, also when
    the waiting task is cancelled."""
    async with slot(pool):
        return await anyio.to_thread.run_sync(call, *args)


RESTS, LONGEST_REST_S = 3.0, 2.0
_RESTING = 1000  # owners; what is above is looked through for those whose rest is over
_rests: RunVar[dict[str, float]] = RunVar("hawker rests")


async def in_thread_with_rests(pool: Pool, call: Callable[[Unpack[A]], T], *args: *A) -> T:
    """Does what `in_thread` does, for work that keeps the interpreter to itself: before its next call an owner rests
    `RESTS` times as long as its last call took, `LONGEST_REST_S` seconds at most, so that it has a fourth of the
    processor. The node does not rest."""
    owner, now = whose(), anyio.current_time
    while True:
        await anyio.sleep_until(_rest_of(owner))
        async with slot(pool):
            if _rest_of(owner) > (began := now()):
                continue  # another of the owner's had the thread meanwhile; who rests holds none
            try:
                return await anyio.to_thread.run_sync(call, *args)
            finally:
                if owner != NODE:
                    _note_rest(owner, now() + min(RESTS * (now() - began), LONGEST_REST_S), now())


def _rest_of(owner: str) -> float:
    """Until when; a time that is over for one who does not rest."""
    return _rests.get({}).get(owner, 0.0)


def _note_rest(owner: str, until: float, now: float) -> None:
    rests = _rests.get({})
    if len(rests) >= _RESTING:
        rests = {each: over for each, over in rests.items() if over > now}
    rests[owner] = until
    _rests.set(rests)


@asynccontextmanager
async def slot(pool: Pool) -> AsyncIterator[None]:
    """Within the block the caller may use one thread of the pool."""
    async with turns_of(pool).hold(whose()):
        yield


def whose() -> str:
    """The key in whose share the work of this task counts."""
    return _whose.get()


@contextmanager
def on_behalf_of(key: str) -> Iterator[None]:
    """Within the block, work of this task and of tasks that it starts counts in the share of `key`."""
    before = _whose.set(key)
    try:
        yield
    finally:
        _whose.reset(before)


PROBE_S, PROBED_FOR_S = 2.0, 1.0


class PoolProbe:
    """Finds out whether each pool still gives threads: a call that does nothing goes through each pool, as the node's
    own work would. One probe runs at a time, and none while the last one is younger than `PROBED_FOR_S` seconds,
    however many ask."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._one = anyio.Lock()
        self._at = -PROBED_FOR_S
        self._stuck: tuple[str, ...] = ()

    async def check(self) -> None:
        """Raises `Unavailable` when a kind of work gets no thread any more: such a node answers, and does nothing."""
        if stuck := await self._look():
            raise Unavailable(f"no thread comes free for {', '.join(stuck)}")

    async def _look(self) -> tuple[str, ...]:
        async with self._one:
            if self._clock.monotonic() >= self._at + PROBED_FOR_S:
                turned: set[Pool] = set()
                with anyio.move_on_after(PROBE_S):
                    async with anyio.create_task_group() as tasks:
                        for pool in Pool:
                            tasks.start_soon(_probe, pool, turned)
                self._stuck = tuple(pool.value.name for pool in Pool if pool not in turned)
                self._at = self._clock.monotonic()
            return self._stuck


async def _probe(pool: Pool, turned: set[Pool]) -> None:
    with on_behalf_of(NODE):
        async with slot(pool):
            await anyio.to_thread.run_sync(int, abandon_on_cancel=True)
    turned.add(pool)
