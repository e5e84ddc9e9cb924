"""What a worker reads of the machines that its spares stand by for, from rows as the catalog has them."""

from collections.abc import Mapping
from pathlib import Path

import apsw
import pytest

import hawker.catalog
from hawker.catalog.contract import ResultTable, Statement
from hawker.errors import Unavailable
from hawker.fleet.failover import ALIVE, DOWN, CatalogView, Spare, Takeover, Watched
from hawker.ids import AppName, MachineId, NodeId

pytestmark = pytest.mark.anyio

ME, LOST, OTHER = NodeId("aaaaaaaa"), NodeId("bbbbbbbb"), NodeId("cccccccc")
WATCHED = MachineId("d0000000000001")


class Rows:
    """A catalog that is only read, over tables of its own."""

    def __init__(self) -> None:
        self.connection = apsw.Connection(":memory:")
        for _ in self.connection.execute((Path(hawker.catalog.__path__[0]) / "tables.sql").read_text()):
            pass

    def put(self, query: str, *params: str | float) -> None:
        for _ in self.connection.execute(query, params):
            pass

    async def query(self, statement: Statement, *, timeout_s: float) -> ResultTable:
        rows = tuple(self.connection.execute(statement.query, tuple(statement.params)))
        return ResultTable(columns=(), rows=rows)


def machine(
    rows: Rows,
    node: NodeId,
    machine_id: str,
    state: str,
    *,
    generation: int = 1,
    standby: str = "[]",
    app: str = "shop",
) -> None:
    rows.put(
        "INSERT INTO machines (node, id, app, state, generation, standby_for, updated_at) VALUES (?, ?, ?, ?, ?, ?, 7)",
        node, machine_id, app, state, generation, standby,
    )  # fmt: skip


@pytest.fixture
def rows() -> Rows:
    return Rows()


def sight(rows: Rows, answers: Mapping[NodeId, str | None] | None = None) -> CatalogView:
    said = answers or {}

    async def ask(node: NodeId, about: NodeId) -> str:
        answer = said.get(node)
        if answer is None:
            raise Unavailable("no answer")
        return answer

    async def away(node: NodeId) -> bool:
        return node == OTHER

    fates = {LOST: DOWN, **dict.fromkeys(said, ALIVE)}
    for node in (ME, *fates):
        rows.put("INSERT OR IGNORE INTO nodes (node, region) VALUES (?, 'mad')", node)
    return CatalogView(me=ME, region="mad", catalog=rows, believed=lambda: fates, ask=ask, away=away)


async def test_the_row_that_counts_is_that_of_the_greatest_generation(rows: Rows) -> None:
    machine(rows, OTHER, WATCHED, "stopped", generation=1)
    machine(rows, LOST, WATCHED, "started", generation=2)
    assert await sight(rows).watched(WATCHED) == Watched(
        id=WATCHED, app=AppName("shop"), owner=LOST, runs=True, seen=7.0
    )


async def test_nodes_of_the_region_that_gossip_does_not_know_count_as_down(rows: Rows) -> None:
    rows.put("INSERT INTO nodes (node, region) VALUES ('ffffffff', 'mad'), ('eeeeeeee', 'fra')")
    assert await sight(rows, {OTHER: ALIVE}).fates() == {ME: ALIVE, LOST: DOWN, OTHER: ALIVE, "ffffffff": DOWN}


async def test_a_machine_that_nobody_published_is_unknown(rows: Rows) -> None:
    assert await sight(rows).watched(WATCHED) is None


async def test_spares_are_those_that_can_still_be_started(rows: Rows) -> None:
    machine(rows, OTHER, "e0000000000001", "stopped", standby=f'["{WATCHED}"]')
    machine(rows, OTHER, "e0000000000002", "started", standby=f'["{WATCHED}"]')
    machine(rows, ME, "e0000000000003", "stopped", standby='["d0000000000009"]')
    machine(rows, LOST, WATCHED, "started")
    machine(rows, OTHER, "a0000000000001", "stopped", standby=f'["{WATCHED}"]', app="alpha")
    assert await sight(rows).spares(WATCHED) == [Spare(id=MachineId("e0000000000001"), owner=OTHER)]


async def test_takeovers_are_found_by_machine_and_by_its_owner(rows: Rows) -> None:
    machine(rows, ME, WATCHED, "started")
    rows.put("INSERT INTO takeovers (node, machine, spare, seen) VALUES (?, ?, ?, ?)", OTHER, WATCHED, "e1", 3.0)
    found = [Takeover(machine=WATCHED, spare=MachineId("e1"), seen=3.0)]
    assert await sight(rows).takeovers(WATCHED) == found
    assert await sight(rows).taken_from(ME) == found
    assert await sight(rows).taken_from(LOST) == []


async def test_a_takeover_by_a_machine_of_another_app_is_none(rows: Rows) -> None:
    machine(rows, ME, WATCHED, "started")
    machine(rows, OTHER, "a0000000000001", "started", app="alpha")
    rows.put("INSERT INTO takeovers (node, machine, spare, seen) VALUES (?, ?, 'a0000000000001', 3.0)", OTHER, WATCHED)
    assert await sight(rows).takeovers(WATCHED) == await sight(rows).taken_from(ME) == []


@pytest.mark.parametrize(
    ("answers", "count"), [({OTHER: DOWN}, 1), ({OTHER: ALIVE}, 0), ({OTHER: None}, 0), ({LOST: DOWN}, 0), ({}, 0)]
)
async def test_a_witness_is_another_living_node_that_says_so(
    rows: Rows, answers: Mapping[NodeId, str | None], count: int
) -> None:
    assert await sight(rows, answers).witnesses(LOST) == count
