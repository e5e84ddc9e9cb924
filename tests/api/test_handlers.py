from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from hawker.api.contract.exec import (
    MACHINE_LOGS,
    MACHINE_TERMINAL,
    LogsQuery,
    TerminalInput,
    TerminalOutput,
    TerminalRequest,
)
from hawker.api.contract.image import IMPORT_IMAGE, ImageInfo, ImportQuery
from hawker.api.contract.machine import MachineParams
from hawker.api.contract.node import HEALTH, LIST_REGIONS, NODE_INFO, Health, LogChunk, NodeInfo, RegionList
from hawker.api.handlers import Handlers, SocketChannel, answers, finish
from hawker.api.route import Call, NoParams, NoQuery
from hawker.api.routes import ROUTES
from hawker.errors import NotFound

pytestmark = pytest.mark.anyio
LIST_REGIONS_AGAIN = replace(LIST_REGIONS, name="list_regions_again", path="/again")


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


class Answers:
    """One method for each kind of route."""

    @answers(HEALTH)
    async def health(self, call: Call[NoParams, NoQuery, None]) -> Health:
        return Health(status="ok", version="1")

    @answers(MACHINE_LOGS)
    async def logs(self, call: Call[MachineParams, LogsQuery, None]) -> AsyncIterator[LogChunk]:
        raise NotFound("no logs")

    @answers(IMPORT_IMAGE)
    async def import_(self, call: Call[NoParams, ImportQuery, None], data: AsyncIterator[bytes]) -> ImageInfo:
        raise NotFound("no image")

    @answers(MACHINE_TERMINAL)
    async def terminal(
        self,
        call: Call[MachineParams, NoQuery, TerminalRequest],
        channel: SocketChannel[TerminalOutput, TerminalInput],
    ) -> None:
        raise NotFound("no terminal")


class Overriding(Answers):
    @answers(NODE_INFO)
    async def info(self, call: Call[NoParams, NoQuery, None]) -> NodeInfo:
        raise NotFound("no node")

    @answers(HEALTH)
    async def health(self, call: Call[NoParams, NoQuery, None]) -> Health:
        return Health(status="other", version="1")


def test_marked_methods_of_every_kind_are_bound() -> None:
    handlers, object_ = Handlers(), Answers()
    handlers.add(object_)
    assert handlers.missing([HEALTH, MACHINE_LOGS, IMPORT_IMAGE, MACHINE_TERMINAL, NODE_INFO]) == ("node_info",)
    assert handlers.of(HEALTH) == object_.health


async def test_overriding_method_answers_instead_of_the_inherited_one() -> None:
    handlers = Handlers()
    handlers.add(Overriding())
    answer = await handlers.of(HEALTH)(None)
    assert answer.status == "other" and handlers.missing([NODE_INFO, MACHINE_LOGS]) == ()


def test_object_without_a_marked_method_is_refused() -> None:
    with pytest.raises(AssertionError, match="object answers no route"):
        Handlers().add(object())


def test_two_objects_cannot_answer_one_route() -> None:
    with pytest.raises(AssertionError, match="health has a handler already"):
        Handlers().add(Answers(), Overriding())


def test_method_may_answer_several_routes() -> None:
    class Both:
        @answers(LIST_REGIONS)
        @answers(LIST_REGIONS_AGAIN)
        async def regions(self, call: Call[NoParams, NoQuery, None]) -> RegionList:
            raise NotFound("no regions")

    handlers = Handlers()
    handlers.add(Both())
    assert handlers.missing([LIST_REGIONS, LIST_REGIONS_AGAIN]) == ()
