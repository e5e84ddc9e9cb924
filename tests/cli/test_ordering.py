import pytest

from hawker.api.contract.machine import CreateMachineRequest
from hawker.api.in_process import InProcessCaller
from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.ordering import ClientOrder, one_off, place, start
from hawker.clock import ManualClock
from hawker.config import MachineConfig, MachineRestart
from hawker.errors import NameTaken, NotFound
from hawker.machine import State
from tests.cli.conftest import Hawker
from tests.cli.fake_market import FakeMarket
from tests.cli.fake_node import LAUNCHED, FakeNode, exit_event, image


@pytest.fixture
def node() -> FakeMarket:
    return FakeMarket()


def test_all_that_were_filled_are_waited_for(node: FakeMarket, hawker: Hawker) -> None:
    said = hawker("machine", "run", "--count", "2", "web:3")
    assert (said.status, said.out.split()) == (ExitStatus.OK, ["3d8f0000000000", "3d8f0000000001"])
    assert {call.params.machine_id for call in node.calls["wait_machine"]} == set(said.out.split())


def test_detached_nothing_is_waited_for(node: FakeMarket, hawker: Hawker) -> None:
    assert hawker("machine", "run", "--count", "2", "-d", "web:3").status == ExitStatus.OK
    assert "wait_machine" not in node.calls


def test_an_order_not_filled_is_an_error(node: FakeMarket, hawker: Hawker) -> None:
    node.room = 1
    said = hawker("machine", "run", "--count", "2", "-d", "web:3")
    assert said.status == ExitStatus.NO_ROOM and "1 of 2 filled" in said.err


def test_several_are_not_attached_to(hawker: Hawker) -> None:
    assert hawker("machine", "run", "--count", "2", "--attach", "web:3").status == ExitStatus.USAGE


def test_where_several_nodes_bid_the_image_is_left_to_the_one_that_wins(node: FakeMarket, hawker: Hawker) -> None:
    assert hawker("machine", "run", "-d", "web:3").status == ExitStatus.OK
    assert "pull_image" not in node.calls


pytestmark = pytest.mark.anyio

REQUEST = CreateMachineRequest(config=MachineConfig(image="web:3"))


def caller(node: FakeNode) -> InProcessCaller:
    return InProcessCaller(node.handlers(), ManualClock(), "tester")


def order(app: str | None = None) -> ClientOrder:
    return ClientOrder(app=app, request=REQUEST, order_id="o-1")


async def test_the_default_app_is_made_when_it_is_missing() -> None:
    node = FakeNode()
    await place(caller(node), order())
    await place(caller(node), order())
    assert list(node.apps) == ["default"]
    assert len(node.calls["create_app"]) == 1


async def test_an_app_made_by_someone_else_meanwhile_will_do() -> None:
    node = FakeNode()
    node.failures["create_app"] = NameTaken("taken")
    await place(caller(node), order())
    assert "create_machine" in node.calls


async def test_an_app_that_was_named_is_not_made() -> None:
    node = FakeNode()
    with pytest.raises(NotFound, match="shop"):
        await place(caller(node), order("shop"))
    assert not {"create_app", "pull_image", "create_machine"} & node.calls.keys()


async def test_the_image_is_pulled_before_the_order_unless_it_is_there() -> None:
    node = FakeNode()
    await place(caller(node), order())
    assert list(node.calls)[-2:] == ["pull_image", "create_machine"]
    assert node.call("pull_image").body.reference == "web:3"
    node.images = (image("web:3"),)
    await place(caller(node), order())
    assert len(node.calls["pull_image"]) == 1


async def test_the_orders_id_goes_with_it() -> None:
    node = FakeNode()
    await place(caller(node), order())
    assert node.call("create_machine").idempotency_key == "o-1"
    assert node.call("create_machine").body == REQUEST


async def test_a_started_order_is_waited_for() -> None:
    node = FakeNode()
    machine = await start(caller(node), order(), ManualClock(), 5.0)
    assert machine.state is State.STARTED


async def test_an_order_that_does_not_start_says_why() -> None:
    node = FakeNode()
    node.fate = (State.STOPPED, (exit_event(3), LAUNCHED))
    with pytest.raises(Failure, match="status 3"):
        await start(caller(node), order(), ManualClock(), 5.0)


def test_a_one_off_is_not_run_again_unless_that_was_asked_for() -> None:
    assert one_off(MachineConfig(image="x")).restart == MachineRestart(policy="no")
    asked = MachineConfig(restart=MachineRestart(policy="always"))
    assert one_off(asked) == asked
