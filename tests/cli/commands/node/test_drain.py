import msgspec

from hawker.api.contract.cluster import NodeMachine
from hawker.config import MachineConfig
from hawker.config.machine import Mount
from hawker.machine import State
from tests.cli.conftest import Hawker
from tests.cli.fake_moves import MOVE
from tests.cli.fake_node import FakeNode, machine

FIRST, SECOND = "3d8f0000000001", "3d8f0000000002"


def test_machines_are_moved_with_progress_and_a_table(hawker: Hawker, node: FakeNode) -> None:
    node.add("shop", machine(FIRST))
    node.residents = (NodeMachine(id=FIRST, app="shop"),)
    said = hawker("node", "drain", "0badc")
    assert said.status == 0
    assert said.err.splitlines() == [
        "0badcafe accepts no new machines; 1 machine to move",
        f"shop: name-1 ({FIRST}): ordering a copy on another node",
        f"shop: name-1 ({FIRST}): moved, the copy is 3d8f00000000ff",
        "1 moved, 0 stay",
    ]
    assert said.out.splitlines()[1].split() == ["shop", FIRST, "name-1", "3d8f00000000ff", "moved"]


def test_machines_that_stay_are_told_by_the_status(hawker: Hawker, node: FakeNode) -> None:
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


def test_a_machine_with_a_volume_moves_with_it_and_stays_if_told(hawker: Hawker, node: FakeNode) -> None:
    mounted = machine(FIRST, config=MachineConfig(image="web", mounts=(Mount(volume="vol_1", path="/data"),)))
    node.add("shop", mounted)
    node.residents = (NodeMachine(id=FIRST, app="shop"),)
    said = hawker("node", "drain", "0badc", "--limit", "80")
    assert said.status == 0 and "with its volume to node 4e5f6071, and was away for 5.2 s" in said.out
    body = node.call("move_machine").body
    assert (body.source, body.limit_mib_per_s) == ("0badcafe", 80)
    assert "create_machine" not in node.calls
    kept = hawker("node", "drain", "0badc", "--keep-volumes")
    assert kept.status == 1 and "--keep-volumes leaves" in kept.out


def test_a_drain_that_is_given_again_follows_the_move_that_there_is(hawker: Hawker, node: FakeNode) -> None:
    mounted = machine(FIRST, config=MachineConfig(image="web", mounts=(Mount(volume="vol_1", path="/data"),)))
    node.add("shop", mounted)
    node.residents = (NodeMachine(id=FIRST, app="shop"),)
    node.moves = (msgspec.structs.replace(MOVE, node="0badcafe", machine=FIRST),)
    assert hawker("node", "drain", "0badc").status == 0
    assert "move_machine" not in node.calls
