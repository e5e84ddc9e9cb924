import anyio
import click
import pytest

from hawker.api.caller import Caller
from hawker.api.contract.node import HEALTH
from hawker.cli.access import Access
from hawker.cli.connect import talk
from hawker.cli.exits import Failure
from hawker.errors import NotFound, Unavailable


def context(url: str) -> click.Context:
    return click.Context(click.Command("x"), obj=Access(url))


def test_a_conversation_answers(url: str) -> None:
    assert talk(context(url), lambda caller: caller.call(HEALTH)).status == "ok"


@pytest.mark.parametrize("error", [NotFound("x"), Failure("x", 130), BrokenPipeError(32, "x")])
def test_an_error_in_a_task_group_comes_out_alone(url: str, error: Exception) -> None:
    async def fail() -> None:
        raise error

    async def conversation(caller: Caller) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)

    with pytest.raises(type(error)) as caught:
        talk(context(url), conversation)
    assert caught.value is error


def test_errors_of_different_kinds_stay_together(url: str) -> None:
    async def conversation(caller: Caller) -> None:
        raise BaseExceptionGroup("", [NotFound("x"), Unavailable("y")])

    with pytest.raises(BaseExceptionGroup):
        talk(context(url), conversation)
