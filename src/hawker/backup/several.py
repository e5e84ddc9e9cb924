"""Work on many things, a few at a time."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup

from hawker.errors import HawkerError, one_error

T = TypeVar("T")


async def each_of(things: Iterable[T], at_once: int, take: Callable[[T], Awaitable[object]]) -> None:
    """Takes each, so many at once. Raises the first error, and nothing is under way any more then."""
    left, failed = iter(things), list[HawkerError | OSError]()

    async def work(tasks: TaskGroup) -> None:
        try:
            for thing in left:
                await take(thing)
        except (HawkerError, OSError) as error:
            failed.append(error)
            tasks.cancel_scope.cancel()

    with one_error():
        async with anyio.create_task_group() as tasks:
            for _ in range(at_once):
                tasks.start_soon(work, tasks)
    if failed:
        raise failed[0]
