import msgspec

from hawker.api.contract.cluster import FleetNodes
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode


def test_the_fleet_as_a_table_and_as_json(hawker: Hawker) -> None:
    assert [line.split()[0] for line in hawker("node", "list").out.splitlines()] == [
        "NODE",
        "0badcafe",
        "0bad0001",
        "00c0ffee",
    ]
    told = msgspec.json.decode(hawker("node", "list", "--json").out, type=FleetNodes)
    assert [(node.id, node.state) for node in told.nodes][2] == ("00c0ffee", "down")


def test_wrong_clocks_are_told_beside_the_table(hawker: Hawker, node: FakeNode) -> None:
    before, nodes = hawker("node", "list").out, node.nodes
    nodes["0bad0001"] = msgspec.structs.replace(nodes["0bad0001"], clock_ahead_s=-86_400.0)
    told = hawker("node", "list")
    assert told.out == before
    assert told.err.startswith("the clock of 0bad0001 is 86400 s behind the clock of the asked node: ")
