import msgspec

from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode, machine


def test_apps_are_listed(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine())
    said = hawker("apps", "list")
    assert said.out.splitlines()[1].split()[:3] == ["shop", "deployed", "1"]
    assert msgspec.json.decode(hawker("apps", "list", "-o", "json").out)["apps"][0]["name"] == "shop"


def test_an_app_is_created_and_named(node: FakeNode, hawker: Hawker) -> None:
    assert hawker("apps", "create", "shop", "--network", "front", "--org", "mine").out == "shop\n"
    body = node.call("create_app").body
    assert (body.name, body.network, body.org_slug) == ("shop", "front", "mine")


def test_a_name_that_is_taken_is_refused(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop")
    said = hawker("apps", "create", "shop")
    assert (said.status, said.err) == (1, "error: Validation failed: Name has already been taken\n")


def test_an_app_is_shown(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop")
    assert ["machines", "0"] in [line.split() for line in hawker("apps", "show", "shop").out.splitlines()]
    assert hawker("apps", "show", "other").status == ExitStatus.NOT_FOUND


def test_an_app_is_destroyed_with_its_machines_only_by_force(node: FakeNode, hawker: Hawker) -> None:
    node.add("a")
    node.add("b")
    assert hawker("apps", "destroy", "a").out == "a\n"
    assert hawker("apps", "destroy", "--force", "b").status == ExitStatus.OK
    assert [call.query.force for call in node.calls["delete_app"]] == [False, True]
    assert node.apps == {}
