"""Many nodes at once: bounded, in time, and the rest counts."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from hawker.api.caller import Caller
from hawker.api.contract.node import HEALTH
from hawker.errors import BadRequest, NotFound, Unavailable
from hawker.gateway.fan_out import FanOut, FanOutLimits, Reach
from hawker.ids import NodeId
from tests.gateway.town import FAR, HERE, Town, town_of
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with town_of(tmp_path, HERE, HERE, FAR) as town:
        yield town


def asking(town: Town, **patience: float) -> FanOut:
    return FanOut(Reach(town, town), FanOutLimits(**patience))  # type: ignore[arg-type]


async def health(caller: Caller) -> str:
    return (await caller.call(HEALTH)).status


async def test_answers_are_in_the_order_of_the_nodes_each_asked_once(town: Town) -> None:
    one, two, three = town.hosts
    asked = await asking(town).every([three, one, three, two], "ann", health)
    assert asked.answers == ((three, "ok"), (one, "ok"), (two, "ok")) and not asked.silent


async def test_a_node_that_does_not_answer_in_time_is_told_by_region(town: Town) -> None:
    async def slow(caller: Caller) -> str:
        if caller._host.region == FAR:  # type: ignore[attr-defined]  # the town's own
            await anyio.sleep_forever()
        return "ok"

    asked = await asking(town, each_s=1).every(town.hosts, "ann", slow)
    assert len(asked.answers) == 2 and asked.regions == (FAR,)
    assert "within 1 s" in str(asked.silent[0][1])


async def test_all_together_have_a_deadline_too(town: Town) -> None:
    async def never(caller: Caller) -> str:
        await anyio.sleep_forever()
        return "never"

    with anyio.fail_after(10):
        asked = await asking(town, at_once=1, each_s=1e6, all_s=5).every(town.hosts, "ann", never)
    assert not asked.answers and len(asked.silent) == 3
    with pytest.raises(Unavailable, match="it cannot be asked for"):
        asked.some("it")


async def test_no_more_are_asked_at_once_than_allowed(town: Town) -> None:
    at_work, most = 0, 0

    async def count(caller: Caller) -> str:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await anyio.lowlevel.checkpoint()
        at_work -= 1
        return "ok"

    await asking(town, at_once=2).every(town.hosts, "ann", count)
    assert most == 2


async def test_the_first_answer_ends_the_rest(town: Town) -> None:
    one, two, _ = town.hosts

    async def only_two(caller: Caller) -> str:
        if caller._host.id == one:  # type: ignore[attr-defined]  # the town's own
            raise NotFound("not here")
        if caller._host.id == two:  # type: ignore[attr-defined]
            return "here"
        await anyio.sleep_forever()
        return "never"

    with anyio.fail_after(60):
        asked = await asking(town).first(town.hosts, "ann", only_two)
    assert asked.answers == ((two, "here"),) and not asked.silent and not asked.regions


async def test_nobody_has_it_is_no_answer_and_no_error(town: Town) -> None:
    async def none(caller: Caller) -> str:
        raise NotFound("not here")

    asked = await asking(town).first(town.hosts, "ann", none)
    assert not asked.answers and not asked.silent
    asked.some("it")


async def test_a_node_s_refusal_is_raised(town: Town) -> None:
    async def refuse(caller: Caller) -> str:
        raise BadRequest("no")

    with pytest.raises(BadRequest):
        await asking(town).every(town.hosts, "ann", refuse)


async def test_nobody_to_ask_is_nothing(town: Town) -> None:
    asked = await asking(town).every(list[NodeId](), "ann", health)
    assert (asked.answers, asked.silent, asked.regions) == ((), (), ())
