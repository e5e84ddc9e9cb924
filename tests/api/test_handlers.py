from collections.abc import AsyncIterator
from typing import Any

import pytest

from hawker.api.contract.node import HEALTH, NODE_INFO, Health
from hawker.api.handlers import Handlers, finish
from hawker.api.route import Call
from hawker.api.routes import ROUTES

pytestmark = pytest.mark.anyio


async def _health(call: Call[Any, Any, Any]) -> Health:
    return Health(status="ok", version="1")


def test_routes_without_a_handler_are_named() -> None:
    handlers = Handlers()
    handlers.on(HEALTH, _health)
    assert handlers.missing([HEALTH, NODE_INFO]) == ("node_info",)
    assert len(handlers.missing(ROUTES)) == len(ROUTES) - 1
    assert handlers.of(HEALTH) is _health


def test_a_route_has_one_handler() -> None:
    handlers = Handlers()
    handlers.on(HEALTH, _health)
    with pytest.raises(AssertionError, match="health has a handler already"):
        handlers.on(HEALTH, _health)


async def test_finish_runs_the_end_of_a_generator_left_early() -> None:
    ended = []

    async def items() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            ended.append(True)

    generator = items()
    await anext(generator)
    await finish(generator)
    assert ended == [True]


async def test_finish_leaves_a_plain_iterator_alone() -> None:
    class Plain:
        def __aiter__(self) -> "Plain":
            return self

        async def __anext__(self) -> int:
            return 1

    await finish(Plain())
