from collections.abc import AsyncIterator
from typing import Any

import click
import pytest

from hawker.api.contract.catalog import CatalogLine
from hawker.api.contract.cluster import FleetNode, FleetNodes
from hawker.api.in_process import InProcessCaller
from hawker.cli.nodes import Loss, clock_notes, loss_of, node_fields, nodes_table, said_of
from hawker.clock import ManualClock
from tests.cli.conftest import Hawker
from tests.cli.fake_fleet import FakeFleet
from tests.cli.fake_node import FakeNode

SHARED = ("4/32", "(8:1)")


def test_nodes_are_shown_with_what_is_known_of_them() -> None:
    lines = nodes_table(FleetNodes(nodes=tuple(FakeFleet().nodes.values()))).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["0badcafe", "mad", "alive", "enabled", "3", "1.5/4", *SHARED, "0.50/2.0", "GiB"],
        ["0bad0001", "mad", "alive", "disabled", "-", "-", "-", "-"],
        ["00c0ffee", "fra", "down", "enabled", "-", "-", "-", "-"],
    ]


def test_a_wide_list_of_nodes_has_round_trips_too() -> None:
    text = nodes_table(FleetNodes(nodes=tuple(FakeFleet().nodes.values())), wide=True)
    head, *rows = click.unstyle(text).splitlines()
    assert head.split()[-4:] == ["RTT", "PEER", "API", "VERSION"]
    assert "0.422 ms" in rows[1]


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
def test_a_text_that_is_no_node_is_told(hawker: Hawker, text: str, status: int, said: str) -> None:
    told = hawker("node", "show", text)
    assert told.status == status and said in told.err


pytestmark = pytest.mark.anyio

ROWS: dict[str, list[tuple[Any, ...]]] = {
    "machines": [(3,)],
    "volumes": [(1,)],
    "apps": [("lab", 0, 0), ("moved", 2, 1), ("shop", 2, 0)],
}


class Telling(FakeNode):
    async def _query_catalog(self, call: Any) -> AsyncIterator[CatalogLine]:
        assert call.body.params == ("0badcafe",)
        table = next(table for table in ROWS if f" FROM {table} " in call.body.query)

        async def lines() -> AsyncIterator[CatalogLine]:
            yield CatalogLine(columns=("some",))
            for row in ROWS[table]:
                yield CatalogLine(row=row)

        return lines()


async def test_an_app_is_lost_unless_another_node_knows_it() -> None:
    caller = InProcessCaller(Telling().handlers(), ManualClock(), "tester")
    loss = await loss_of(caller, "0badcafe")
    assert loss == Loss(machines=3, volumes=1, left=("shop",), gone=("lab",))
    first, second, third = said_of("0badcafe", loss)
    assert first == "node 0badcafe has 3 machines and 1 volumes: they will no longer be listed"
    assert "node 0badcafe is the home of shop: the next call" in second
    assert "no other node knows lab" in third


def test_of_a_node_with_nothing_little_is_said() -> None:
    assert len(list(said_of("0badcafe", Loss(machines=0, volumes=0, left=(), gone=())))) == 1
