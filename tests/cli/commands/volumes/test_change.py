import pytest

from hawker.api.contract.volume import UpdateVolumeRequest
from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode
from tests.cli.fake_volumes import volume


@pytest.mark.parametrize(("size", "becomes"), [("10", 10), ("+2", 5), ("7GB", 7)])
def test_a_volume_is_extended_to_or_by_a_size(node: FakeNode, hawker: Hawker, size: str, becomes: int) -> None:
    node.add("shop")
    node.keep("shop", volume())
    said = hawker("volumes", "extend", "data", "--size", size)
    assert node.call("extend_volume").body.size_gb == becomes
    assert ["size", str(becomes), "GiB"] in [line.split() for line in said.out.splitlines()]
    assert said.err == ""


def test_a_machine_that_must_be_restarted_to_see_it_is_named(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop")
    node.keep("shop", volume(attached_machine_id="3d8f0000000001"))
    assert "hawker machine restart 3d8f0000000001" in hawker("volumes", "extend", "data", "--size", "9").err


def test_how_snapshots_are_kept_is_changed(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop")
    node.keep("shop", volume())
    said = hawker("volumes", "update", "data", "--snapshot-retention", "1", "--no-scheduled-snapshots")
    assert node.call("update_volume").body == UpdateVolumeRequest(snapshot_retention=1, auto_backup_enabled=False)
    assert "manual, kept for 1 day\n" in said.out


def test_an_update_that_says_nothing_is_refused(node: FakeNode, hawker: Hawker) -> None:
    assert hawker("volumes", "update", "data").status == ExitStatus.USAGE
    assert node.calls == {}


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


def test_loss_of_a_volume_is_accepted(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop")
    node.keep("shop", volume())
    assert hawker("volumes", "update", "data", "--accept-damage").status == ExitStatus.OK
    assert node.call("update_volume").body == UpdateVolumeRequest(accept_damage=True)
