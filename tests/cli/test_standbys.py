"""Spares of a machine that is moved: found, pointed at its copy, and left alone while they run."""

from typing import Any

import pytest

from hawker.api.contract.catalog import CatalogLine
from hawker.api.in_process import InProcessCaller
from hawker.cli.draining import Spares, that_stand_by
from hawker.cli.exits import Failure
from hawker.clock import ManualClock
from hawker.config import MachineConfig
from hawker.machine import State
from tests.cli.fake_node import FakeNode, machine

pytestmark = pytest.mark.anyio

OLD, NEW, SPARE, OTHER = "3d8f0000000001", "3d8f0000000002", "3d8f0000000003", "3d8f0000000004"


def spare(machine_id: str = SPARE, *watched: str, state: State = State.STOPPED, **fields: Any) -> Any:
    return machine(machine_id, state=state, config=MachineConfig(image="web", standbys=watched or (OLD,)), **fields)


def node_with(*machines: Any) -> FakeNode:
    node = FakeNode()
    node.add("shop", machine(OLD), *machines)
    return node


def spares_at(node: FakeNode) -> Spares:
    return Spares(InProcessCaller(node.handlers(), ManualClock(), "tester"), ManualClock(), within_s=5.0)


def standbys(node: FakeNode, machine_id: str = SPARE) -> Any:
    config = node.apps["shop"][machine_id].config
    return config and config.standbys


async def test_only_what_stands_by_for_it_is_found() -> None:
    node = node_with(spare(), spare(NEW, OTHER), spare(OTHER, state=State.DESTROYED))
    assert [each.id for each in await spares_at(node).of("shop", machine(OLD))] == [SPARE]


async def test_a_spare_is_pointed_once_and_stays_off() -> None:
    node = node_with(spare(SPARE, OTHER, OLD))
    for _ in range(2):
        assert await spares_at(node).point("shop", [node.apps["shop"][SPARE]], OLD, NEW) == ""
    assert standbys(node) == (OTHER, NEW)
    body = node.call("update_machine").body
    assert (body.skip_launch, body.current_version) == (True, "01V1")


async def test_one_that_runs_is_left_alone_and_told_of() -> None:
    node = node_with(spare(state=State.STARTED))
    found = await spares_at(node).of("shop", machine(OLD))
    assert that_stand_by(found) == ()
    assert f"spare {SPARE} is not stopped" in await spares_at(node).point("shop", found, OLD, NEW)
    assert standbys(node) == (OLD,)


async def test_one_that_was_destroyed_meanwhile_is_passed_over() -> None:
    assert await spares_at(node_with()).point("shop", [spare()], OLD, NEW) == ""


async def test_one_at_a_node_that_is_away_is_named_with_what_to_do() -> None:
    node = node_with(spare())
    node.missing_regions = ("local",)
    node.answer = (CatalogLine(columns=("id", "node")), CatalogLine(row=(SPARE, "0badcafe")))
    assert await spares_at(node).of("shop", machine(OLD))
    node.answer += (CatalogLine(row=(OTHER, "0badcafe")),)
    with pytest.raises(Failure, match=f"its spare {OTHER} is at node 0badcafe, which is away.*hawker node forget"):
        await spares_at(node).of("shop", machine(OLD))


async def test_one_that_is_busy_is_waited_for_by_the_next_drain() -> None:
    with pytest.raises(Failure, match="an operation is under way on its spare"):
        await spares_at(node_with(spare(state=State.UPDATING))).of("shop", machine(OLD))
