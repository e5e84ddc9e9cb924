import msgspec
import pytest

from hawker.cli.exits import ExitStatus
from hawker.config import MachineConfig
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode, machine


@pytest.fixture(autouse=True)
def _machine(node: FakeNode) -> None:
    node.add("shop", machine(name="web", config=MachineConfig(metadata={"b": "2", "a": "1"})))


def test_metadata_is_shown_in_order(hawker: Hawker) -> None:
    _, *rows = hawker("machine", "metadata", "show", "web").out.splitlines()
    assert [row.split() for row in rows] == [["a", "1"], ["b", "2"]]
    assert msgspec.json.decode(hawker("machine", "metadata", "show", "web", "-o", "json").out) == {"a": "1", "b": "2"}


def test_keys_are_set_and_removed_together(node: FakeNode, hawker: Hawker) -> None:
    assert hawker("machine", "metadata", "set", "web", "a=1=2", "c=").status == ExitStatus.OK
    assert node.call("update_metadata").body.metadata == {"a": "1=2", "c": ""}
    node.calls.clear()
    assert hawker("machine", "metadata", "remove", "web", "a", "b").status == ExitStatus.OK
    assert node.call("update_metadata").body.metadata == {"a": None, "b": None}


def test_a_pair_without_a_sign_is_wrong_usage(hawker: Hawker) -> None:
    assert hawker("machine", "metadata", "set", "web", "a").status == ExitStatus.USAGE
