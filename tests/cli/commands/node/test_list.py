import msgspec

from hawker.api.bodies import FleetNodes
from tests.cli.conftest import Hawker


def test_the_fleet_as_a_table_and_as_json(hawker: Hawker) -> None:
    assert [line.split()[0] for line in hawker("node", "list").out.splitlines()] == [
        "NODE",
        "0badcafe",
        "0bad0001",
        "00c0ffee",
    ]
    told = msgspec.json.decode(hawker("node", "list", "--json").out, type=FleetNodes)
    assert [(node.id, node.state) for node in told.nodes][2] == ("00c0ffee", "down")
