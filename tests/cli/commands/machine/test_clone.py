import pytest

from hawker.cli.exits import ExitStatus
from hawker.config import Init, MachineConfig
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode, machine


@pytest.fixture(autouse=True)
def _machine(node: FakeNode) -> None:
    node.add("shop", machine(name="web", region="ams", config=MachineConfig(image="web:3", env={"A": "1"})))


def test_a_clone_has_the_config_in_the_same_app_and_region(node: FakeNode, hawker: Hawker) -> None:
    said = hawker("machine", "clone", "web", "--name", "web-2", "-e", "B=2", "--", "sh")
    assert said.status == ExitStatus.OK
    call = node.call("create_machine")
    assert (call.params.app_name, call.body.region, call.body.name) == ("shop", "ams", "web-2")
    assert call.body.config == MachineConfig(image="web:3", env={"A": "1", "B": "2"}, init=Init(cmd=("sh",)))


def test_a_clone_may_go_to_another_app_that_is_there(node: FakeNode, hawker: Hawker) -> None:
    assert hawker("machine", "clone", "web", "--to-app", "staging").status == ExitStatus.NOT_FOUND
    node.add("staging")
    assert hawker("machine", "clone", "web", "--to-app", "staging", "-r", "fra", "--no-wait").status == ExitStatus.OK
    call = node.call("create_machine")
    assert (call.params.app_name, call.body.region) == ("staging", "fra")
    assert "wait_machine" not in node.calls
