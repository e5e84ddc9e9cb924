"""What clients of a fleet order, and how they take what they are told."""

import pytest

from hawker.api.in_process import InProcessCaller
from hawker.chaos.fleet.clients import APP, ORDER, FleetClients, ToldOrders
from hawker.clock import ManualClock
from hawker.config import MachineConfig
from hawker.errors import HawkerError, NoRoom, OrderUncertain, Unavailable
from tests.cli.fake_node import FakeNode

pytestmark = pytest.mark.anyio


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
def clients(node: FakeNode) -> FleetClients:
    return FleetClients(
        [InProcessCaller(node.handlers(), ManualClock(), "tester")], ManualClock(), MachineConfig(image="web:3")
    )


async def test_a_filled_order_is_a_promise_and_bears_its_name(clients: FleetClients, node: FakeNode) -> None:
    told = ToldOrders()
    await clients.open()
    await clients.order(0, "first", told)
    (machine,) = await clients.machines(0)
    assert machine.config is not None and machine.config.metadata == {ORDER: "first"}
    assert [(promise.order, promise.machine) for promise in clients.promised] == [("first", machine.id)]
    assert [answer.outcome for answer in told.answers] == ["filled"]
    call = node.call("create_machine")
    assert (call.params.app_name, call.idempotency_key) == (APP, "first")


async def test_an_order_may_have_no_key_and_a_spare_is_left_off(clients: FleetClients, node: FakeNode) -> None:
    await clients.open()
    await clients.order(0, "second", ToldOrders(), keyed=False)
    assert node.call("create_machine").idempotency_key is None
    node.calls.clear()
    await clients.create(0, "spare", standbys=("d0000000000001",))
    assert node.call("create_machine").body.skip_launch


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NoRoom("no host has room", scope="region", shortfall={}), "refused"),
        (Unavailable("away"), "unavailable"),
        (OrderUncertain("nothing was heard"), "unknown"),
    ],
)
async def test_unfilled_order_is_noted_with_its_reason(
    clients: FleetClients, node: FakeNode, error: HawkerError, outcome: str
) -> None:
    node.failures["create_machine"] = error
    told = ToldOrders()
    await clients.order(0, "third", told)
    assert [(answer.outcome, answer.why) for answer in told.answers] == [(outcome, str(error))]
    assert clients.promised == []
