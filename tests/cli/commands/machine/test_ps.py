from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode, machine


def test_processes_are_listed_with_what_they_listen_on(node: FakeNode, hawker: Hawker) -> None:
    node.add("shop", machine(name="web"))
    row = hawker("machine", "ps", "web").out.splitlines()[1]
    assert row.split() == ["7", "3", "%", "2.0", "KiB", "61", "s", "tcp:[::]:80", "web"]
