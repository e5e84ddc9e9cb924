import msgspec

from hawker.api.contract.run import RunList
from hawker.cli.exits import ExitStatus
from hawker.errors import Forbidden
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode, check, machine


def test_the_status_has_the_machine_its_checks_events_and_last_run(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web", checks=(check("passing"),)))
    text = hawker("machine", "status", "web").out
    for word in ("digest", "http-80", "passing", "launch", "rootfs", "37.1 ms"):
        assert word in text
    assert node.call("list_runs").query.resource_id == "3d8f0000000001"
    assert node.call("get_machine").query.include_leases is True


def test_the_status_as_json(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    shown = msgspec.json.decode(hawker("machine", "show", "web", "-o", "json").out)
    assert (shown["app"], shown["machine"]["name"], shown["last_run"]["flow"]) == ("shop", "web", "create")


def test_a_token_of_an_app_sees_the_machine_without_its_runs(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    node.failures["list_runs"] = Forbidden("this token does not allow r on the node")
    said = hawker("machine", "status", "web")
    assert said.status == ExitStatus.OK and "digest" in said.out and "rootfs" not in said.out


def test_a_machine_whose_runs_are_forgotten_has_none(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    node.runs = RunList(runs=())
    said = hawker("machine", "status", "web")
    assert said.status == ExitStatus.OK
    assert "rootfs" not in said.out
