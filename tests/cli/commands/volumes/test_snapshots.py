from hawker.api.contract.volume import CreateVolumeRequest
from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode
from tests.cli.fake_volumes import TAKEN, volume


def shelve(node: FakeNode) -> None:
    node.add("shop")
    node.keep("shop", volume())


def test_snapshots_are_listed(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    heading, _, row = hawker("volumes", "snapshots", "list", "data").out.splitlines()
    assert heading.split()[:3] == ["ID", "STATUS", "SIZE"]
    assert row.split()[:8] == ["vs_0000000000000001", "created", "7.0", "MiB", "3.0", "GiB", "5", "d"]


def test_a_snapshot_is_waited_for_and_its_id_printed(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    node.stages = ["waiting", "running"]
    said = hawker("volumes", "snapshots", "create", "data")
    assert (said.status, said.out) == (ExitStatus.OK, f"{TAKEN}\n")
    assert said.err.splitlines() == [f"snapshot {TAKEN}: waiting", f"snapshot {TAKEN}: running"]


def test_a_snapshot_that_fails_is_a_failure(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    node.stages = ["failed"]
    said = hawker("volumes", "snapshot", "create", "data")
    assert said.status == ExitStatus.FAILED and "hawker runs list --volume vol_0000000000000001" in said.err


def test_a_snapshot_that_takes_too_long_is_a_failure(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    node.stages = ["running"]
    assert "still running after 0 s" in hawker("volumes", "snapshots", "create", "data", "--timeout", "0").err


def test_nobody_has_to_wait_for_a_snapshot(node: FakeNode, hawker: Hawker) -> None:
    shelve(node)
    assert hawker("volumes", "snapshots", "create", "data", "--no-wait").out == f"{TAKEN}\n"
    assert "list_snapshots" not in node.calls


def test_a_snapshot_is_restored_into_a_new_volume(node: FakeNode, hawker: Hawker) -> None:
    said = hawker("volumes", "snapshots", "restore", TAKEN, "--size", "9")
    assert said.status == ExitStatus.OK
    assert node.call("create_volume").body == CreateVolumeRequest(name="restored", size_gb=9, snapshot_id=TAKEN)
    assert node.call("create_volume").params.app_name == "shop"  # the snapshot's own


def test_a_snapshot_is_restored_into_the_app_that_is_named(node: FakeNode, hawker: Hawker) -> None:
    hawker("volumes", "snapshots", "restore", TAKEN, "-a", "other")
    assert node.call("create_volume").params.app_name == "other" and "find_snapshot" not in node.calls


def test_a_snapshot_that_is_not_there_is_not_found(hawker: Hawker) -> None:
    assert hawker("volumes", "snapshots", "restore", "vs_nothing").status == ExitStatus.NOT_FOUND
