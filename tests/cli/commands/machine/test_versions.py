from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode, machine


def test_versions_are_listed_with_what_differs_most(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    row = hawker("machine", "versions", "web").out.splitlines()[1]
    assert row.split() == ["01V1", "registry.local/web:3", "1", "shared", "256", "MiB"]
