import pytest

from hawker.api.contract.machine import WaitState
from hawker.cli.exits import ExitStatus
from hawker.machine import State
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode, machine


@pytest.fixture(autouse=True)
def _machine(node: FakeNode) -> None:
    node.add("shop", machine(name="web", state=State.STOPPED))


def test_the_state_that_was_reached_is_printed(node: FakeNode, hawker: Hawker) -> None:
    assert hawker("machine", "wait", "web", "--state", "stopped", "-s", "failed").out == "stopped\n"
    assert node.call("wait_machine").query.state == (WaitState.STOPPED, WaitState.FAILED)


def test_a_wait_that_takes_too_long_fails(node: FakeNode, hawker: Hawker) -> None:
    said = hawker("machine", "wait", "web", "--timeout", "0")
    assert said.status == ExitStatus.FAILED
    assert "currently stopped" in said.err
    assert node.calls["wait_machine"][0].query.state == (WaitState.STARTED,)
