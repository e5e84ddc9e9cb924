import json

import pytest

from hawker.cli.exits import ExitStatus
from hawker.errors import WrongState
from hawker.machine import State
from tests.cli.conftest import Hawker
from tests.cli.fake_node import LAUNCHED, FakeNode, exit_event, machine

ID = "3d8f0000000001"
OTHER = "3d8f0000000002"


@pytest.fixture(autouse=True)
def _machines(node: FakeNode) -> None:
    node.add("shop", machine(ID, name="web"), machine(OTHER, name="job", state=State.STOPPED))


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (("start", "job"), "start_machine"),
        (("stop", "job"), "stop_machine"),
        (("suspend", "job"), "suspend_machine"),
        (("restart", "job"), "restart_machine"),
        (("kill", "job"), "signal_machine"),
        (("destroy", "job"), "delete_machine"),
        (("cordon", "job"), "cordon_machine"),
        (("uncordon", "job"), "uncordon_machine"),
    ],
)
def test_each_operation_is_its_call_and_prints_the_id(
    node: FakeNode, hawker: Hawker, words: tuple[str, ...], call: str
) -> None:
    said = hawker("machine", *words)
    assert (said.status, said.out, said.err) == (ExitStatus.OK, f"{OTHER}\n", "")
    assert node.call(call).params.machine_id == OTHER


def test_json_says_what_became_of_each(hawker: Hawker) -> None:
    said = hawker("machine", "destroy", "job", "web", "nobody", "-o", "json")
    done, refused, missing = json.loads(said.out)
    assert done == {"named": "job", "id": OTHER, "error": None}
    assert (refused["named"], refused["id"]) == ("web", None) and "not currently stopped" in refused["error"]
    assert missing["id"] is None and "not found" in missing["error"]
    assert said.status == ExitStatus.FAILED and said.err.count("error: ") == 2


def test_json_of_a_new_name(hawker: Hawker) -> None:
    assert json.loads(hawker("machine", "rename", "job", "work", "-o", "json").out) == {"id": OTHER, "name": "work"}


def test_how_a_machine_is_stopped_goes_with_the_call(node: FakeNode, hawker: Hawker) -> None:
    hawker("machine", "stop", "web", "-s", "TERM", "-t", "90")
    body = node.call("stop_machine").body
    assert (body.signal, body.timeout) == ("TERM", "1m30s")
    hawker("machine", "restart", "web", "-s", "TERM", "-t", "1m30s", "--force")
    query = node.call("restart_machine").query
    assert (query.signal, query.timeout, query.force_stop) == ("TERM", 90.0, True)
    hawker("machine", "kill", "web", "-s", "HUP")
    assert node.call("signal_machine").body.signal == "HUP"


@pytest.mark.parametrize("operation", ["start", "stop", "restart"])
def test_waiting_may_be_left_out(node: FakeNode, hawker: Hawker, operation: str) -> None:
    assert hawker("machine", operation, "--no-wait", "web").status == ExitStatus.OK
    assert "wait_machine" not in node.calls


def test_a_running_machine_is_destroyed_only_by_force(node: FakeNode, hawker: Hawker) -> None:
    said = hawker("machine", "destroy", "web")
    assert (said.status, said.out) == (ExitStatus.FAILED, "")
    assert "not currently stopped" in said.err
    assert hawker("machine", "rm", "-f", "web").out == f"{ID}\n"


def test_a_failure_does_not_keep_the_others_from_being_done(node: FakeNode, hawker: Hawker) -> None:
    said = hawker("machine", "stop", "nothing", "web")
    assert (said.status, said.out) == (ExitStatus.NOT_FOUND, f"{ID}\n")
    assert "machine 'nothing' not found" in said.err


def test_the_first_failure_gives_the_status(node: FakeNode, hawker: Hawker) -> None:
    node.failures["start_machine"] = WrongState("unable to start")
    assert hawker("machine", "start", "nothing", "web").status == ExitStatus.NOT_FOUND
    assert hawker("machine", "start", "web", "nothing").status == ExitStatus.FAILED


def test_a_machine_that_does_not_start_is_a_failure(node: FakeNode, hawker: Hawker) -> None:
    node.fate = (State.STOPPED, (exit_event(3), LAUNCHED))
    said = hawker("machine", "start", "job", "web")
    assert (said.status, said.out) == (ExitStatus.FAILED, "")
    assert said.err.count("it exited with status 3") == 2
