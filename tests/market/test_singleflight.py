from collections.abc import Awaitable, Callable

import anyio
import pytest

from hawker.errors import NotFound
from hawker.market.singleflight import Singleflight

pytestmark = pytest.mark.anyio


class Source:
    """Answers with how often it was asked, once it is let."""

    def __init__(self) -> None:
        self.asked = 0
        self.let = anyio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.asked += 1
        mine = self.asked
        await self.let.wait()
        if self.error is not None:
            raise self.error
        return mine


async def rest() -> None:
    await anyio.wait_all_tasks_blocked()


async def test_those_who_come_meanwhile_are_answered_by_the_next_call() -> None:
    together, source, answers = Singleflight[int](), Source(), list[int]()

    async def ask(call: Callable[[], Awaitable[int]] = source) -> None:
        answers.append(await together.ask("a", call))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(ask)
            await rest()
        assert source.asked == 1
        source.let.set()
    assert answers == [1, 2, 2, 2]


async def test_other_keys_wait_for_nobody() -> None:
    together, source = Singleflight[int](), Source()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(together.ask, "a", source)
        tasks.start_soon(together.ask, "b", source)
        await rest()
        assert source.asked == 2
        source.let.set()


async def test_whose_caller_is_gone_the_next_one_asks() -> None:
    together, source, answers = Singleflight[int](), Source(), list[int]()
    scopes = [anyio.CancelScope() for _ in range(4)]

    async def ask(scope: anyio.CancelScope) -> None:
        with scope:
            answers.append(await together.ask("a", source))

    async with anyio.create_task_group() as tasks:
        for scope in scopes:
            tasks.start_soon(ask, scope)
            await rest()
        scopes[1].cancel()  # it waited to ask for the others
        await rest()
        scopes[0].cancel()  # it was asking
        await rest()
        assert source.asked == 2
        source.let.set()
    assert answers == [2, 2]


async def test_all_are_told_what_went_wrong_and_nothing_is_kept() -> None:
    together, source, errors = Singleflight[int](), Source(), list[str]()
    source.error = NotFound("app not found")

    async def ask() -> None:
        try:
            await together.ask("a", source)
        except NotFound as error:
            errors.append(str(error))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask)
            await rest()
        source.let.set()
    assert errors == ["app not found"] * 3 and source.asked == 2
    source.error = None
    assert await together.ask("a", source) == 3
