import msgspec
import pytest

from hawker.api.contract.cluster import FleetNodes
from hawker.api.contract.node import DriverInfo, NodeInfo
from hawker.cli.commands.node.show import node_text
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


@pytest.mark.parametrize("word", ["show", "status"])
def test_the_node_says_what_it_has_and_what_is_left(hawker: Hawker, word: str) -> None:
    found = [line.split() for line in hawker("node", word).out.splitlines()]
    assert ["driver", "container"] in found
    assert ["machines", "2", "started,", "1", "stopped"] in found
    assert ["shared", "cpus", "24", "3", "21"] in found  # (4 - 1 performance) * 8
    assert ["performance", "cpus", "4", "1", "3"] in found
    assert ["memory,", "MiB", "8192", "1024", "7168"] in found
    assert ["gpus,", "a10", "2", "1", "1"] in found


def test_the_node_says_what_it_found_of_each_driver(hawker: Hawker) -> None:
    node = msgspec.json.decode(hawker("node", "show", "-o", "json").out, type=NodeInfo)
    assert node_text(node).splitlines()[-1].split(maxsplit=2) == ["container", "chosen", "crun is there"]
    others = (
        DriverInfo(name="firecracker", usable=False, reason="firecracker is missing", chosen=False),
        DriverInfo(name="qemu", usable=True, reason="emulates, which is slow", chosen=False),
    )
    shown = node_text(msgspec.structs.replace(node, drivers=(*others, *node.drivers))).splitlines()[-3:]
    assert [line.split(maxsplit=2) for line in shown[:2]] == [
        ["firecracker", "no", "firecracker is missing"],
        ["qemu", "yes", "emulates, which is slow"],
    ]
    assert "DRIVER" not in node_text(msgspec.structs.replace(node, drivers=()))


def test_a_node_whose_edge_has_several_processes_says_how_many(hawker: Hawker) -> None:
    node = msgspec.json.decode(hawker("node", "show", "-o", "json").out, type=NodeInfo)
    assert "edge" not in node_text(node)
    several = node_text(msgspec.structs.replace(node, edge_processes=2)).splitlines()
    assert ["edge", "processes", "2"] in [line.split() for line in several]


def test_the_node_as_json(hawker: Hawker) -> None:
    assert msgspec.json.decode(hawker("node", "show", "-o", "json").out)["id"] == "0badcafe"


def test_another_node_is_shown_as_far_as_it_is_known(hawker: Hawker) -> None:
    said = hawker("node", "show", "00c0").out
    assert ["state", "down"] in [line.split() for line in said.splitlines()]
    assert said.endswith("it does not answer\n")
    assert msgspec.json.decode(hawker("node", "show", "00c0", "-o", "json").out)["id"] == "00c0ffee"
