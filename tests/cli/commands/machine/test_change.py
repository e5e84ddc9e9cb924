from pathlib import Path

import pytest

from hawker.api.contract.port import PublishedPortState
from hawker.cli.exits import ExitStatus
from hawker.config import Guest, MachineConfig
from hawker.errors import Conflict
from hawker.machine import State
from tests.cli.conftest import Hawker
from tests.cli.fake_node import STARTED, FakeNode, event, machine

BEFORE = MachineConfig(image="web:3", env={"A": "1", "B": "2"}, guest=Guest(cpus=1, cpu_kind="shared", memory_mb=256))
UPDATED = event("update", "updating", "user")


@pytest.fixture(autouse=True)
def _machine(node: FakeNode) -> None:
    node.add("shop", machine(name="web", config=BEFORE))
    node.fate = (State.STARTED, (STARTED, UPDATED))


def test_flags_change_what_they_name_and_the_rest_stays(node: FakeNode, hawker: Hawker) -> None:
    said = hawker("machine", "update", "web", "-e", "A=3", "--memory", "1g")
    assert said.status == ExitStatus.OK
    body = node.call("update_machine").body
    assert body.config == MachineConfig(
        image="web:3", env={"A": "3", "B": "2"}, guest=Guest(cpus=1, cpu_kind="shared", memory_mb=1024)
    )
    assert body.current_version == "01V1"  # no change in between is lost


def test_a_port_that_is_published_is_said(node: FakeNode, hawker: Hawker) -> None:
    node.ports = (PublishedPortState(address="0.0.0.0", port=8080, internal_port=80, handlers=(), listening=True),)
    assert "published  localhost:8080 -> 80" in hawker("machine", "update", "web", "-p", "8080:80").out
    assert "published  localhost:8080 -> 80" in hawker("machine", "status", "web").out


def test_a_new_image_is_pulled_before(node: FakeNode, hawker: Hawker) -> None:
    hawker("machine", "update", "web", "-e", "A=3")
    assert "pull_image" not in node.calls
    hawker("machine", "update", "web", "--image", "web:4")
    assert node.call("pull_image").body.reference == "web:4"
    assert node.calls["update_machine"][-1].body.config.image == "web:4"


def test_an_updated_machine_may_be_left_stopped(node: FakeNode, hawker: Hawker) -> None:
    node.fate = (State.STOPPED, (UPDATED,))
    said = hawker("machine", "update", "web", "--skip-launch")
    assert said.status == ExitStatus.OK
    assert "stopped" in said.out
    assert node.call("update_machine").body.skip_launch is True


def test_waiting_may_be_left_out(node: FakeNode, hawker: Hawker) -> None:
    assert hawker("machine", "update", "web", "--no-wait").status == ExitStatus.OK
    assert "wait_machine" not in node.calls


def test_a_concurrent_change_is_told_apart(node: FakeNode, hawker: Hawker) -> None:
    node.failures["update_machine"] = Conflict("machine update failed due to concurrent update")
    assert "hint: another client changed it" in hawker("machine", "update", "web").err


def test_a_field_that_is_kept_without_effect_is_said_when_it_is_given(
    node: FakeNode, hawker: Hawker, tmp_path: Path
) -> None:
    file = tmp_path / "machine.json"
    file.write_text('{"statics": [{"guest_path": "/s", "url_prefix": "/s"}]}')
    assert "warning: statics are kept and not served" in hawker("machine", "update", "web", "--config", str(file)).err
    node.add("shop", machine(name="web", config=node.call("update_machine").body.config))
    assert "statics" not in hawker("machine", "update", "web", "-e", "A=3").err
