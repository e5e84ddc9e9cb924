import pytest

from hawker.api.contract.cluster import FleetNode, FleetNodes
from hawker.cli.nodes import clock_notes, node_fields, nodes_table
from tests.cli.conftest import Hawker
from tests.cli.fake_fleet import FakeFleet


def test_nodes_are_shown_with_what_is_known_of_them() -> None:
    lines = nodes_table(FleetNodes(nodes=tuple(FakeFleet().nodes.values()))).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["0badcafe", "mad", "alive", "enabled", "3", "1.5/4", "512.0", "MiB/2.0", "GiB", "-", "-"],
        ["0bad0001", "mad", "alive", "disabled", "-", "-", "-", "0.422", "ms", "-"],
        ["00c0ffee", "fra", "down", "enabled", "-", "-", "-", "-", "-"],
    ]


def test_a_node_that_is_drained_says_so() -> None:
    node = FleetNode(id="a", region="mad", state="alive", cordoned=True, draining=True, labels={"b": "2", "a": "1"})
    found = [line.split() for line in node_fields(node).splitlines()]
    assert ["scheduling", "draining"] in found and ["labels", "a=1,", "b=2"] in found


@pytest.mark.parametrize(
    ("ahead_s", "said"),
    [
        (None, ""),
        (-59.0, "right"),
        (61.2, "61 s ahead of the clock of the asked node"),
        (-86_400.0, "86400 s behind the clock of the asked node"),
    ],
)
def test_a_clock_that_is_wrong_is_told(ahead_s: float | None, said: str) -> None:
    node = FleetNode(
        id="a", region="mad", state="alive", cordoned=False, draining=False, rtt_ms=1.0, clock_ahead_s=ahead_s
    )
    clocks = [line.split(maxsplit=1)[1] for line in node_fields(node).splitlines() if line.startswith("clock")]
    assert clocks == ([said] if said else [])
    wrong = [] if said in ("", "right") else [f"the clock of a is {said}: see `hawker node doctor`"]
    assert clock_notes(FleetNodes(nodes=(node,))) == wrong


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("ffff", 3, "no node 'ffff'; there are 0badcafe, 0bad0001, 00c0ffee"),
        ("0bad", 1, "node '0bad' is not unique: 0badcafe, 0bad0001"),
        ("", 3, "no node ''"),
    ],
)
def test_what_is_no_node_is_told(hawker: Hawker, text: str, status: int, said: str) -> None:
    told = hawker("node", "show", text)
    assert told.status == status and said in told.err
