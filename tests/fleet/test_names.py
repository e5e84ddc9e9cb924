"""Names of other nodes' machines, from rows as the catalog has them."""

from collections.abc import Sequence

import msgspec
import pytest

from hawker.api.caller import Caller
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.clock import ManualClock, SystemClock
from hawker.errors import Unavailable
from hawker.fleet.failover import CatalogQueries
from hawker.fleet.names import FarNames, FleetNames
from hawker.ids import AppName, NodeId
from hawker.names import NamedApp, NamedMachine
from tests.fleet.desk import Narrow
from tests.fleet.test_failover_view import Rows

pytestmark = pytest.mark.anyio
ME, NEAR, GONE, FAR = NodeId("aaaaaaaa"), NodeId("bbbbbbbb"), NodeId("cccccccc"), NodeId("dddddddd")
MINE, THEIRS = 7, 8


class Told:
    def __init__(self) -> None:
        self.apps: Sequence[NamedApp] = ()
        self.machines: Sequence[NamedMachine] = ()

    def __call__(self, apps: Sequence[NamedApp], machines: Sequence[NamedMachine]) -> None:
        self.apps, self.machines = apps, machines


def fleet(rows: Rows | CatalogQueries, told: Told, *networks: int) -> FleetNames:
    return FleetNames(ME, rows, lambda: networks, lambda node: node != GONE, told, SystemClock())


def put_app(rows: Rows, node: NodeId, name: str, network_id: int) -> None:
    record = msgspec.json.encode({"name": name, "network_id": network_id}).decode()
    rows.put("INSERT INTO apps (node, name, record) VALUES (?, ?, ?)", node, name, record)


def put_machine(rows: Rows, node: NodeId, number: int, app: str, ip: str, metadata: str = "{}", **more: str) -> None:
    rows.put(
        "INSERT INTO machines (node, id, app, state, private_ip, metadata, name) VALUES (?, ?, ?, ?, ?, ?, ?)",
        node, f"{number:014x}", app, more.get("state", "started"), ip, metadata, f"name-{number}",
    )  # fmt: skip


@pytest.fixture
def rows() -> Rows:
    rows = Rows()
    for node, region in ((ME, "ams"), (NEAR, "iad"), (GONE, "ams")):
        rows.put("INSERT INTO nodes (node, region) VALUES (?, ?)", node, region)
    put_app(rows, NEAR, "shop", MINE)
    put_app(rows, ME, "shop", MINE)
    put_app(rows, NEAR, "bank", THEIRS)
    return rows


async def test_machines_of_living_nodes_in_networks_that_are_here_are_told(rows: Rows) -> None:
    put_machine(rows, NEAR, 1, "shop", "fdaa:0:7::1", '{"fly_process_group": "web"}')
    put_machine(rows, NEAR, 2, "shop", "fdaa:0:7::2", state="stopped")
    put_machine(rows, ME, 3, "shop", "fdaa:0:7::3")
    put_machine(rows, GONE, 4, "shop", "fdaa:0:7::4")
    put_machine(rows, NEAR, 5, "bank", "fdaa:0:8::5")
    told = Told()
    await fleet(rows, told, MINE).read()
    assert list(told.apps) == [NamedApp(name=AppName("shop"), network_id=MINE)]
    assert [each.name for each in told.machines] == ["name-1", "name-2"]
    assert [(each.ip, each.started, each.group, each.region) for each in told.machines] == [
        ("fdaa:0:7::1", True, "web", "iad"),
        ("fdaa:0:7::2", False, "", "iad"),
    ]


async def test_large_metadata_of_one_tenant_is_read_in_parts(rows: Rows) -> None:
    for number in range(12):
        put_machine(rows, NEAR, number, "shop", f"fdaa:0:7::{number + 1}", f'{{"a": "{"x" * 100_000}"}}')
    told = Told()
    await fleet(Narrow(rows, 300_000), told, MINE).read()
    assert [each.name for each in told.machines] == [f"name-{number}" for number in range(12)]
    assert not any(each.metadata for each in told.machines), "pairs without names are left out"


async def test_the_latest_generation_of_a_machine_counts_wherever_it_is(rows: Rows) -> None:
    for node, generation, ip in ((NEAR, 2, "fdaa:0:7::2"), (NodeId("eeeeeeee"), 3, "fdaa:0:7::3")):
        put_machine(rows, node, 1, "shop", ip)
        rows.put("UPDATE machines SET generation = ? WHERE node = ?", generation, node)
    rows.put("INSERT INTO nodes (node, region) VALUES ('eeeeeeee', 'ams')")
    told = Told()
    await fleet(rows, told, MINE).read()
    assert [each.ip for each in told.machines] == ["fdaa:0:7::3"]


@pytest.mark.parametrize(
    ("ip", "metadata"), [("", "{}"), ("fdaa:nonsense", "{}"), ("10.0.0.1", "{}"), ("fdaa:0:7::1", "["),
                         ("fdaa:0:8::1", "{}"), ("fdaa:0:7::1", '{"a": 7}')]
)  # fmt: skip
async def test_a_row_that_no_node_of_ours_writes_is_nobodys_name(rows: Rows, ip: str, metadata: str) -> None:
    put_machine(rows, NEAR, 1, "shop", ip, metadata)
    put_machine(rows, NEAR, 2, "shop", "fdaa:0:7::2")
    told = Told()
    await fleet(rows, told, MINE).read()
    assert [each.ip for each in told.machines] == ["fdaa:0:7::2"]


async def test_without_machines_here_nothing_is_asked() -> None:
    class Nobody(Rows):
        async def query(self, statement: object, *, timeout_s: float) -> object:  # type: ignore[override]
            raise Unavailable("not to be asked")

    await fleet(Nobody(), Told()).read()
    with pytest.raises(Unavailable):
        await fleet(Nobody(), Told(), MINE).read()


class Region:
    """Nodes of another region, each with a catalog of its own; `silent` ones do not answer."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.rows = Rows()
        self.rows.put("INSERT INTO nodes (node, region) VALUES (?, 'iad')", FAR)
        put_app(self.rows, FAR, "shop", MINE)
        put_app(self.rows, FAR, "bank", THEIRS)
        put_machine(self.rows, FAR, 9, "shop", "fdaa:0:7::9", '{"fly_process_group": "web"}')
        put_machine(self.rows, FAR, 8, "bank", "fdaa:0:8::8")
        self.names = FarNames(FAR, "iad", self.rows, tuple, lambda _: [], lambda _: True, self.to, clock)
        self.silent = False
        self.asked = 0

    def to(self, node: NodeId, behalf: str) -> Caller:
        self.asked += 1
        if self.silent:
            raise Unavailable(f"{node} is away")
        handlers = Handlers()
        handlers.add(self.names)
        return InProcessCaller(handlers, self._clock, behalf)


def far_names(rows: Rows, region: Region, clock: ManualClock, *networks: int) -> FarNames:
    rows.put("INSERT INTO addresses VALUES (?, ?, 'shop', ?, 1)", FAR, f"{9:014x}", MINE)
    rows.put("INSERT INTO nodes (node, region) VALUES (?, 'iad')", FAR)
    nodes = {"iad": [FAR, NodeId("eeeeeeee"), NodeId("ffffffff")]}
    return FarNames(
        ME, "ams", rows, lambda: networks, lambda each: nodes.get(each, []), lambda _: True, region.to, clock
    )


@pytest.fixture
def here() -> Rows:
    rows = Rows()
    rows.put("INSERT INTO nodes (node, region) VALUES (?, 'ams')", ME)
    put_app(rows, ME, "shop", MINE)
    return rows


async def test_machines_of_other_regions_are_told_of_networks_that_are_here(here: Rows) -> None:
    clock = ManualClock()
    far, told = far_names(here, Region(clock), clock, MINE), Told()
    await far.ask()
    await FleetNames(ME, here, lambda: [MINE], lambda _: True, told, clock, far.known).read()
    assert [(each.ip, each.region, each.group, each.started) for each in told.machines] == [
        ("fdaa:0:7::9", "iad", "web", True)
    ]


async def test_nobody_is_asked_where_no_network_of_here_is(here: Rows) -> None:
    clock = ManualClock()
    region = Region(clock)
    for networks in ((), (THEIRS,)):
        await far_names(Rows(), region, clock, *networks).ask()
    assert not region.asked


async def test_a_region_that_does_not_answer_is_asked_twice_and_its_names_count_for_a_minute(here: Rows) -> None:
    clock = ManualClock()
    region = Region(clock)
    far = far_names(here, region, clock, MINE)
    await far.ask()
    region.silent, region.asked = True, 0
    await far.ask()
    assert region.asked == 2 and len(far.known()) == 1
    clock.advance(61)
    assert not far.known()


async def test_a_region_that_has_none_of_it_any_more_is_forgotten(here: Rows) -> None:
    clock = ManualClock()
    far = far_names(here, Region(clock), clock, MINE)
    await far.ask()
    here.put("DELETE FROM addresses WHERE network = ?", MINE)
    await far.ask()
    assert not far.known()
