"""Waiting for a condition with a deadline: the one place where a test sleeps. What is waited for is a fact, not a time.

`wait_for` blocks the thread, `eventually` lets the event loop go on. Both return what the condition gave, once true.
"""

import inspect
import select
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

import anyio

T = TypeVar("T")

LONG_S = 180.0
"""More than anything takes that comes at all, on a host that has six times as much to do as it can."""
_SOONEST_S, _LATEST_S = 0.01, 0.1


def wait_for(condition: Callable[[], T], timeout_s: float = LONG_S) -> T:
    """The first true answer of `condition`. Raises `TimeoutError` that shows the last one."""
    began = time.monotonic()
    while not (answer := condition()):
        waited_s = time.monotonic() - began
        if waited_s > timeout_s:
            raise TimeoutError(_complaint(condition, timeout_s, answer))
        time.sleep(_pause_s(waited_s))
    return answer


@overload
async def eventually(condition: Callable[[], Awaitable[T]], timeout_s: float = ...) -> T: ...
@overload
async def eventually(condition: Callable[[], T], timeout_s: float = ...) -> T: ...
async def eventually(condition: Callable[[], Any], timeout_s: float = LONG_S) -> Any:
    """As `wait_for`, for a plain or an async condition. The condition itself is held to the deadline too."""
    answer: object = None
    began = anyio.current_time()
    with anyio.move_on_after(timeout_s):
        while True:
            given = condition()
            answer = await given if inspect.isawaitable(given) else given
            if answer:
                return answer
            await anyio.sleep(_pause_s(anyio.current_time() - began))
    raise TimeoutError(_complaint(condition, timeout_s, answer))


def is_readable(fd: int, within_s: float) -> bool:
    """Whether there is something to read by then, or the end. Of any descriptor: `select` takes the first 1,024."""
    asked = select.poll()
    asked.register(fd, select.POLLIN)
    return bool(asked.poll(within_s * 1000))


def _pause_s(waited_s: float) -> float:
    """A tenth of what was waited already: whoever waits long asks less often, and leaves the processors to others."""
    return min(max(waited_s / 10, _SOONEST_S), _LATEST_S)


def _complaint(condition: Callable[[], object], timeout_s: float, answer: object) -> str:
    name = getattr(condition, "__qualname__", condition)
    return f"{name} not true within {timeout_s} s; last answer: {answer!r}"
