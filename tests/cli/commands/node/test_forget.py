from hawker.errors import WrongState
from tests.cli.conftest import Hawker
from tests.cli.fake_catalog import counted
from tests.cli.fake_node import FakeNode


def test_a_node_is_forgotten(hawker: Hawker, node: FakeNode) -> None:
    node.answer = counted(0)
    said = hawker("node", "forget", "00c0")
    assert said.out == "node 00c0ffee removed: what it told until now no longer counts\n"
    assert not node.call("forget_node").query.force


def test_a_node_that_lives_wants_force(hawker: Hawker, node: FakeNode) -> None:
    node.answer = counted(0)
    node.failures["forget_node"] = WrongState("node 0badcafe is alive: stop it first, or forget it with --force")
    said = hawker("node", "forget", "--force", "0badc")
    assert said.status == 1 and "stop it first" in said.err
    assert node.call("forget_node").query.force


def test_a_dry_run_only_says_what_is_lost(hawker: Hawker, node: FakeNode) -> None:
    node.answer = counted(2)
    said = hawker("node", "forget", "--dry-run", "00c0")
    assert said.status == 0 and "node 00c0ffee has 2 machines and 2 volumes" in said.err
    assert "forget_node" not in node.calls
