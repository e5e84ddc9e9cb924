"""`hawker releases`."""

from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode


def test_releases_are_listed_newest_first(hawker: Hawker) -> None:
    heading, *rows = hawker("releases", "-a", "shop").out.splitlines()
    assert heading.split() == ["VERSION", "STATUS", "STRATEGY", "IMAGE", "USER", "CREATED"]
    assert [row.split()[:4] for row in rows] == [
        ["v3", "failed", "rolling", "registry.local/shop:3"],
        ["v2", "complete", "rolling", "registry.local/shop:2"],
    ]


def test_so_many_releases_are_asked_for(hawker: Hawker, node: FakeNode) -> None:
    assert len(hawker("releases", "-a", "shop", "-n", "1").out.splitlines()) == 2
    assert node.call("list_releases").query.limit == 1
