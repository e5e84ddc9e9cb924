import pytest

from hawker.api.contract.volume import CreateVolumeRequest
from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode
from tests.cli.fake_volumes import NEW, volume

SOURCE = "vol_00000000000000aa"


def test_a_volume_is_created_in_the_default_app_and_shown(node: FakeNode, hawker: Hawker) -> None:
    said = hawker("volumes", "create", "data")
    assert said.status == ExitStatus.OK and said.err == ""
    assert ["id", NEW] in [line.split() for line in said.out.splitlines()]
    assert list(node.apps) == ["default"]
    assert node.call("create_volume").body == CreateVolumeRequest(name="data")


def test_options_go_with_the_order(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop")
    words = ("--size", "10gb", "-r", "ams", "--encrypted", "--fstype", "ext4", "--snapshot-retention", "7")
    hawker("volumes", "create", "data", "-a", "shop", *words, "--no-scheduled-snapshots", "--snapshot-id", "vs_1")
    call = node.call("create_volume")
    assert call.params.app_name == "shop"
    assert call.body == CreateVolumeRequest(
        name="data",
        size_gb=10,
        region="ams",
        encrypted=True,
        fstype="ext4",
        snapshot_id="vs_1",
        snapshot_retention=7,
        auto_backup_enabled=False,
    )


@pytest.mark.parametrize("size", ["0", "-1", "+3", "ten", "1.5"])
def test_a_text_that_is_no_size_is_refused(hawker: Hawker, size: str) -> None:
    assert hawker("volumes", "create", "data", f"--size={size}").status == ExitStatus.USAGE


def test_a_waiting_caller_hears_of_progress(node: FakeNode, hawker: Hawker) -> None:
    node.stages = ["creating", "restoring", "restoring", "created"]
    said = hawker("volumes", "create", "data")
    assert said.err.splitlines() == [f"volume {NEW}: creating", f"volume {NEW}: restoring"]
    assert ["state", "created"] in [line.split() for line in said.out.splitlines()]


def test_one_that_could_not_be_made_is_a_failure(node: FakeNode, hawker: Hawker) -> None:
    node.stages = ["creating", "gone"]
    said = hawker("volumes", "create", "data")
    assert said.status == ExitStatus.FAILED
    assert f"hawker runs list --volume {NEW}" in said.err


def test_one_that_takes_too_long_is_a_failure(node: FakeNode, hawker: Hawker) -> None:
    node.stages = ["restoring", "restoring"]
    said = hawker("volumes", "create", "data", "--timeout", "0")
    assert said.status == ExitStatus.FAILED and "still restoring after 0 s" in said.err


def test_nothing_is_waited_for_on_request(node: FakeNode, hawker: Hawker) -> None:
    node.stages = ["creating"]
    said = hawker("volumes", "create", "data", "--no-wait")
    assert ["state", "creating"] in [line.split() for line in said.out.splitlines()]
    assert "get_volume" not in node.calls


def test_a_fork_is_in_the_app_of_its_source_and_has_its_name(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop")
    node.keep("shop", volume(SOURCE, name="logs"))
    said = hawker("volumes", "fork", "logs", "--size", "8")
    assert "several volumes of app shop are named logs now" in said.err
    call = node.call("create_volume")
    assert call.params.app_name == "shop"
    assert call.body == CreateVolumeRequest(name="logs", size_gb=8, source_volume_id=SOURCE)


def test_a_fork_with_a_name_of_its_own_needs_no_warning(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop")
    node.keep("shop", volume(SOURCE, name="logs"))
    assert "several volumes" not in hawker("volumes", "fork", "logs", "--name", "other").err


@pytest.mark.parametrize(("zone", "said"), [("0badcafe", True), ("0badbeef", False)])
def test_a_fork_that_is_to_lie_apart_says_when_it_does_not(
    node: FakeNode, hawker: Hawker, zone: str, said: bool
) -> None:
    node.add("shop")
    node.keep("shop", volume(SOURCE, name="logs", zone=zone))
    told = hawker("volumes", "fork", "logs", "--require-unique-zone").err
    assert ("at the host of its source" in told) is said
    assert node.call("create_volume").body.require_unique_zone is True
