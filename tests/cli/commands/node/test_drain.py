import msgspec

from hawker.api.contract.cluster import NodeMachine
from hawker.config import MachineConfig
from hawker.config.machine import Mount
from hawker.errors import WrongState
from hawker.machine import State
from tests.cli.conftest import Hawker
from tests.cli.fake_catalog import counted
from tests.cli.fake_moves import MOVE
from tests.cli.fake_node import FakeNode, machine
from tests.cli.fake_volumes import volume


def test_a_node_is_cordoned_by_the_beginning_of_its_id(hawker: Hawker, node: FakeNode) -> None:
    assert hawker("node", "cordon", "0badc").out == "0badcafe accepts no new machines\n"
    assert node.call("cordon_node").params.node_id == "0badcafe"
    assert hawker("node", "uncordon", "0badcafe").out == "0badcafe accepts new machines\n"
    assert node.call("uncordon_node").params.node_id == "0badcafe"


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
    node.in_the_way = [WrongState("it is suspended, and its memory is at this node")]
    said = hawker("node", "drain", "0badcafe", "--output", "json")
    assert said.status == 1 and "`hawker node uncordon 0badcafe" in said.err
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


def test_a_drain_does_not_wait_for_the_time_of_a_scheduled_move(hawker: Hawker, node: FakeNode) -> None:
    mounted = machine(FIRST, config=MachineConfig(image="web", mounts=(Mount(volume="vol_1", path="/data"),)))
    node.add("shop", mounted)
    node.residents = (NodeMachine(id=FIRST, app="shop"),)
    node.moves = (msgspec.structs.replace(MOVE, node="0badcafe", machine=FIRST, state="scheduled", at=MOVE.created_at),)
    node.keep("shop", volume(FREE))
    assert hawker("node", "drain", "0badc").status == 0
    assert node.call("move_machine").params.machine_id == FIRST
    node.moves = (msgspec.structs.replace(node.moves[0], machine=None, volume=FREE),)
    assert hawker("node", "evacuate", "0badc").status == 0
    assert node.call("move_volume_to_node").params.volume_id == FREE


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


def test_drain_names_the_volumes_that_it_leaves(hawker: Hawker, node: FakeNode) -> None:
    furnish(node)
    said = hawker("node", "drain", "0badc")
    assert said.status == 0
    assert f"no machine has {FREE}, and a drain leaves such volumes here" in said.err


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


DAMAGED = {"state": "aborted", "code": "damaged", "reason": "volume vol_1 cannot be read at byte 4096"}


def test_evacuation_gives_up_what_cannot_be_read_only_once_a_move_has_failed_for_it(
    hawker: Hawker, node: FakeNode
) -> None:
    furnish(node)
    node.ends, node.ends_lossy = DAMAGED, {"state": "done", "lost": ((4096, 8192),)}
    said = hawker("node", "evacuate", "0badc", "--accept-loss", "--output", "json")
    assert said.status == 0, said
    orders = [each.body.accept_loss for each in [*node.calls["move_machine"], *node.calls["move_volume_to_node"]]]
    assert orders == [None, True, None, True, None, True]
    notes = [each["note"] for each in msgspec.json.decode(said.out)]
    assert len(notes) == 3 and all("LOST 8.0 KiB in 1 place: see `hawker volumes show" in each for each in notes)
    assert "cannot be read at byte 4096; moved once more, and what cannot be read is lost" in said.err


def test_evacuation_loses_nothing_unless_it_is_told_to_and_nothing_for_another_reason(
    hawker: Hawker, node: FakeNode
) -> None:
    furnish(node)
    node.ends, node.ends_lossy = DAMAGED, {"state": "done"}
    assert hawker("node", "evacuate", "0badc").status == 1
    node.ends = {"state": "aborted", "reason": "no room"}
    assert hawker("node", "evacuate", "0badc", "--accept-loss").status == 1
    assert not any(each.body.accept_loss for each in node.calls["move_machine"])


def test_an_evacuation_that_is_given_again_follows_the_move_that_there_is(hawker: Hawker, node: FakeNode) -> None:
    node.keep("shop", volume(FREE))
    node.moves = (msgspec.structs.replace(MOVE, node="0badcafe", machine=None, volume=FREE),)
    said = hawker("node", "evacuate", "0badc")
    assert said.status == 0, said
    assert "move_volume_to_node" not in node.calls


def test_a_node_is_forgotten(hawker: Hawker, node: FakeNode) -> None:
    node.answer = counted(0)
    said = hawker("node", "forget", "00c0")
    assert said.out == "node 00c0ffee removed: what it told until now is ignored\n"
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
