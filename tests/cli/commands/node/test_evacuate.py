import msgspec

from hawker.api.contract.cluster import NodeMachine
from hawker.config import MachineConfig
from hawker.config.machine import Mount
from tests.cli.conftest import Hawker
from tests.cli.fake_moves import MOVE
from tests.cli.fake_node import FakeNode, machine
from tests.cli.fake_volumes import volume

FIRST, SECOND = "3d8f0000000001", "3d8f0000000002"
LARGE, SMALL, FREE = "vol_0000000000000001", "vol_0000000000000002", "vol_0000000000000003"


def furnish(node: FakeNode) -> None:
    """Two machines with volumes, a volume that nobody has, one of another node, one that was deleted."""
    mounted = [
        machine(each, config=MachineConfig(image="web", mounts=(Mount(volume=disk, path="/data"),)))
        for each, disk in ((FIRST, LARGE), (SECOND, SMALL))
    ]
    node.add("shop", *mounted)
    node.residents = (NodeMachine(id=FIRST, app="shop"), NodeMachine(id=SECOND, app="shop"))
    node.keep(
        "shop",
        volume(LARGE, attached_machine_id=FIRST, bytes_used=9 << 20),
        volume(SMALL, attached_machine_id=SECOND, bytes_used=2 << 20),
        volume(FREE, bytes_used=5 << 20),
        volume("vol_0000000000000004", zone="4e5f6071"),
        volume("vol_0000000000000005", state="pending_destroy"),
    )


def test_the_smallest_leaves_first_and_all_is_backed_up_before(hawker: Hawker, node: FakeNode) -> None:
    furnish(node)
    said = hawker("node", "evacuate", "0badc")
    assert said.status == 0, said
    assert [line for line in said.err.splitlines() if " of 3: " in line] == [
        f"1 of 3: machine {SECOND} of shop, 2.0 MiB",
        f"2 of 3: volume {FREE} of shop, 5.0 MiB",
        f"3 of 3: machine {FIRST} of shop, 9.0 MiB",
    ]
    asked = [each.params.volume_id for each in node.calls["create_backup"]]
    assert asked == [SMALL, FREE, LARGE]
    bodies = [each.body for each in node.calls["move_machine"]]
    assert [(body.source, body.limit_mib_per_s) for body in bodies] == [("0badcafe", 1 << 20)] * 2
    assert node.call("move_volume_to_node").params.volume_id == FREE
    assert f"{FREE}" in said.out and "to node 4e5f6071" in said.out


def test_a_backup_that_fails_keeps_nobody_from_leaving(hawker: Hawker, node: FakeNode) -> None:
    furnish(node)
    node.stages = ["failed"]
    said = hawker("node", "evacuate", "0badc")
    assert said.status == 0 and "could not be backed up, and is moved all the same: the place is full" in said.err


def test_machine_that_cannot_be_moved_stays_and_says_why(hawker: Hawker, node: FakeNode) -> None:
    furnish(node)
    node.ends = {"state": "aborted", "reason": "Input/output error"}
    said = hawker("node", "evacuate", "0badc", "--output", "json")
    assert said.status == 1
    whys = [each["why"] for each in msgspec.json.decode(said.out)]
    assert len(whys) == 3 and all("Input/output error" in why for why in whys)


def test_an_evacuation_that_is_given_again_follows_the_move_that_there_is(hawker: Hawker, node: FakeNode) -> None:
    node.keep("shop", volume(FREE))
    node.moves = (msgspec.structs.replace(MOVE, node="0badcafe", machine=None, volume=FREE),)
    said = hawker("node", "evacuate", "0badc")
    assert said.status == 0, said
    assert "move_volume_to_node" not in node.calls
