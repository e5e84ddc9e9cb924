from pathlib import Path

import msgspec
import pytest

from hawker.cli.exits import ExitStatus
from hawker.config import Init, MachineConfig, MachineRestart
from hawker.errors import NoRoom, Unavailable
from hawker.machine import State
from tests.cli.conftest import Hawker
from tests.cli.fake_node import LAUNCHED, STARTED, FakeNode, chunk, exit_event, machine

NEW = "3d8f00000000ff"


def test_a_machine_is_ordered_and_shown_once_it_runs(node: FakeNode, hawker: Hawker) -> None:
    said = hawker("machine", "run", "web:3", "--name", "front", "-e", "A=1", "--", "sh", "-c", "x")
    assert said.status == ExitStatus.OK
    assert ["address", "fdaa::3"] in [line.split() for line in said.out.splitlines()]
    body = node.call("create_machine").body
    assert body.name == "front"
    assert body.config == MachineConfig(image="web:3", env={"A": "1"}, init=Init(cmd=("sh", "-c", "x")))
    assert list(node.apps) == ["default"]


def test_placement_goes_with_the_order(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop")
    hawker("machine", "run", "-a", "shop", "-r", "ams", "--order-id", "o-1", "web:3")
    call = node.call("create_machine")
    assert (call.params.app_name, call.body.region, call.idempotency_key) == ("shop", "ams", "o-1")


def test_the_machine_as_json(node: FakeNode, hawker: Hawker) -> None:
    shown = msgspec.json.decode(hawker("machine", "run", "web:3", "-o", "json").out)
    assert (shown["id"], shown["state"]) == (NEW, "started")


def test_detached_only_the_id_is_printed_and_nothing_waited_for(node: FakeNode, hawker: Hawker) -> None:
    assert hawker("machine", "run", "-d", "web:3").out == f"{NEW}\n"
    assert "wait_machine" not in node.calls


@pytest.mark.parametrize("words", [("create",), ("run", "--skip-launch")])
def test_a_machine_may_be_left_stopped(node: FakeNode, hawker: Hawker, words: tuple[str, ...]) -> None:
    assert hawker("machine", *words, "web:3").out == f"{NEW}\n"
    assert node.call("create_machine").body.skip_launch is True


@pytest.mark.parametrize("flag", ["--rm", "--attach"])
def test_a_one_off_is_not_run_again_by_itself(node: FakeNode, hawker: Hawker, flag: str) -> None:
    node.fate = (State.STOPPED, (exit_event(0), STARTED, LAUNCHED))
    hawker("machine", "run", flag, "web:3")
    hawker("machine", "run", flag, "--restart", "always", "web:3")
    policies = [call.body.config.restart for call in node.calls["create_machine"]]
    assert policies == [MachineRestart(policy="no"), MachineRestart(policy="always")]


def test_attached_the_output_and_the_status_are_the_commands_own(node: FakeNode, hawker: Hawker) -> None:
    node.fate = (State.STOPPED, (exit_event(3), STARTED, LAUNCHED))
    node.chunks = (chunk(0, b"out\n"), chunk(1, b"err\n", stream=2))
    said = hawker("machine", "run", "--attach", "web:3", "--", "x")
    assert (said.status, said.out, said.err) == (3, "out\n", "err\n")


def test_attached_a_machine_goes_once_its_output_was_read(node: FakeNode, hawker: Hawker) -> None:
    node.fate = (State.STOPPED, (exit_event(3), STARTED, LAUNCHED))
    node.chunks = (chunk(0, b"out\n"),)
    said = hawker("machine", "run", "--attach", "--rm", "web:3", "--", "x")
    assert (said.status, said.out) == (3, "out\n")
    assert node.call("create_machine").body.config.auto_destroy is None
    assert node.call("delete_machine").query.force is True
    assert list(node.calls).index("machine_logs") < list(node.calls).index("delete_machine")


def test_attached_a_machine_stays_when_its_node_cannot_be_asked_how_it_is(node: FakeNode, hawker: Hawker) -> None:
    node.fate = (State.STOPPED, (exit_event(3), STARTED, LAUNCHED))
    node.failures["get_machine"] = Unavailable("the node is stopping")
    said = hawker("machine", "run", "--attach", "--rm", "web:3")
    assert said.status == ExitStatus.UNAVAILABLE and "delete_machine" not in node.calls
    first, second, *_ = said.err.splitlines()
    assert f"`hawker logs -f {NEW}` goes back to it" in first and second == "error: the node is stopping"


def test_a_machine_that_does_not_start_says_why_and_fails(node: FakeNode, hawker: Hawker) -> None:
    node.fate = (State.STOPPED, (exit_event(127, reason="exec /nope: no such file"), LAUNCHED))
    said = hawker("machine", "run", "web:3", "--", "/nope")
    assert (said.status, said.out) == (ExitStatus.FAILED, "")
    assert said.err.startswith(f"error: machine {NEW} does not start: exec /nope: no such file; see")


def test_no_room_has_a_status_of_its_own(node: FakeNode, hawker: Hawker) -> None:
    node.failures["create_machine"] = NoRoom("no host has room", scope="host", shortfall={"cpus": 1})
    said = hawker("machine", "run", "web:3")
    assert said.status == ExitStatus.NO_ROOM
    assert said.err.splitlines()[0] == "error: no host has room"


def test_a_whole_config_may_come_from_a_file(node: FakeNode, hawker: Hawker, tmp_path: Path) -> None:
    (tmp_path / "web.json").write_text('{"config": {"image": "web:7", "env": {"A": "1"}}}')
    assert hawker("machine", "run", "--config", str(tmp_path / "web.json"), "--memory", "1g").status == ExitStatus.OK
    config = node.call("create_machine").body.config
    assert (config.image, config.env, config.guest.memory_mb) == ("web:7", {"A": "1"}, 1024)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("run",), "no image"),
        (("run", "--attach", "-d", "web:3"), "--attach "),
        (("run", "--attach", "--skip-launch", "web:3"), "--attach "),
        (("create", "--config", "nowhere"), "cannot read nowhere"),
    ],
)
def test_wrong_usage_orders_nothing(node: FakeNode, hawker: Hawker, words: tuple[str, ...], text: str) -> None:
    said = hawker("machine", *words)
    assert said.status == ExitStatus.USAGE
    assert text in said.err
    assert node.calls == {}


def test_a_config_of_containers_needs_no_image(node: FakeNode, hawker: Hawker, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"containers": [{"name": "web", "image": "nginx"}, {"name": "db", "image": "redis"}]}')
    assert hawker("machine", "run", "-d", "--config", str(file)).status == ExitStatus.OK
    assert [each.name for each in node.call("create_machine").body.config.containers] == ["web", "db"]


def test_a_spare_is_created_for_machines_by_name(node: FakeNode, hawker: Hawker) -> None:
    node.add("default", machine("3d8f0000000001"))
    said = hawker("machine", "create", "--name", "spare", "--standby-for", "name-1", "web:3")
    assert said.status == ExitStatus.OK, said.err
    body = node.call("create_machine").body
    assert (body.config.standbys, body.skip_launch, body.name) == (("3d8f0000000001",), True, "spare")
    assert hawker("machine", "create", "--standby-for", "nobody", "web:3").status == ExitStatus.NOT_FOUND
