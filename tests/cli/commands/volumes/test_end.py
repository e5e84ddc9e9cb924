from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode
from tests.cli.fake_volumes import volume

FIRST, SECOND = "vol_00000000000000aa", "vol_00000000000000ab"


def test_volumes_are_destroyed_and_taken_back(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop")
    node.keep("shop", volume(FIRST, name="one"), volume(SECOND, name="two"))
    said = hawker("volumes", "destroy", "one", "two")
    assert (said.status, said.out.split()) == (ExitStatus.OK, [FIRST, SECOND])
    assert "hawker volumes undelete" in said.err
    assert hawker("volumes", "undelete", "one").out == f"{FIRST}\n"
    assert [each.state for each in node.disks["shop"].values()] == ["created", "pending_destroy"]


def test_a_failure_is_said_and_the_rest_is_done(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop")
    node.keep("shop", volume(FIRST, name="one", attached_machine_id="3d8f0000000001"), volume(SECOND, name="two"))
    said = hawker("volumes", "destroy", "one", "two")
    assert (said.status, said.out) == (ExitStatus.FAILED, f"{SECOND}\n")
    assert "is attached" in said.err and "undelete" not in said.err
