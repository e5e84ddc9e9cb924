import msgspec

from hawker.api.contract.cluster import NodeMachine
from hawker.machine import State
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode, machine

FIRST, SECOND = "3d8f0000000001", "3d8f0000000002"


def test_machines_are_moved_with_progress_and_a_table(hawker: Hawker, node: FakeNode) -> None:
    node.add("shop", machine(FIRST))
    node.residents = (NodeMachine(id=FIRST, app="shop"),)
    said = hawker("node", "drain", "0badc")
    assert said.status == 0
    assert said.err.splitlines() == [
        "0badcafe accepts no new machines; 1 machines to move",
        f"shop: name-1 ({FIRST}): ordering a copy on another node",
        f"shop: name-1 ({FIRST}): moved, the copy is 3d8f00000000ff",
        "1 moved, 0 stay",
    ]
    assert said.out.splitlines()[1].split() == ["shop", FIRST, "name-1", "3d8f00000000ff", "moved"]


def test_what_stays_is_told_by_the_status(hawker: Hawker, node: FakeNode) -> None:
    node.add("shop", machine(FIRST), machine(SECOND, state=State.SUSPENDED))
    node.residents = (NodeMachine(id=FIRST, app="shop"), NodeMachine(id=SECOND, app="shop"))
    said = hawker("node", "drain", "0badcafe", "--output", "json")
    assert said.status == 1
    moved = msgspec.json.decode(said.out)
    assert [bool(each["copy"]) for each in moved] == [True, False]
    assert "it is suspended" in moved[1]["why"]


def test_an_empty_node_has_nothing_to_move(hawker: Hawker, node: FakeNode) -> None:
    said = hawker("node", "drain", "0badcafe")
    assert (said.status, said.out) == (0, "nothing to move\n")
    assert hawker("node", "drain", "ffff").status == 3
