"""Published machines of other nodes, from rows as the catalog has them."""

from collections.abc import Sequence

import anyio
import pytest

from hawker.catalog.contract import ResultTable, Statement
from hawker.clock import SystemClock
from hawker.config import PUBLISH
from hawker.errors import Unavailable
from hawker.feed import EVERYWHERE, GatePlace, MachineRoute, RouteHealth
from hawker.fleet import far_routes
from hawker.fleet.failover import CatalogQueries
from hawker.fleet.far_routes import MAX_HOSTS, MAX_SETS, FarRoutes
from hawker.ids import AppName, NodeId
from hawker.machine import State
from tests.fleet.desk import Narrow
from tests.fleet.test_failover_view import Rows
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
ME, NEAR, GONE = NodeId("aaaaaaaa"), NodeId("bbbbbbbb"), NodeId("cccccccc")
GATE = GatePlace(node=NEAR, host="10.0.0.2", port=4291)
MINE = 7
PUBLISHED = f'{{"{PUBLISH}": "{EVERYWHERE}"}}'
WEB = '{"internal_port": 8080, "protocol": "tcp", "ports": [{"port": 80, "handlers": ["http"]}]}'
SLEEPER = '{"internal_port": 81, "autostart": false, "ports": [{"port": 81}]}'


def routes(rows: Rows | CatalogQueries, tell: Sequence[object] = (), *, outside: bool = True) -> FarRoutes:
    told = tell if isinstance(tell, list) else []

    def take(*all_of_it: object) -> None:
        told.append(all_of_it)

    def gate_of(node: NodeId, app: AppName) -> GatePlace | None:
        assert app == "shop", "whose gates are in one process of its host"
        return GATE if node == NEAR else None

    far_s = {NEAR: 0.033}
    where, wanted = (ME, "mad"), lambda: bool(outside)
    return FarRoutes(*where, rows, gate_of, wanted, lambda: [MINE], take, SystemClock(), far_s.__getitem__)


def put(rows: Rows, node: NodeId, number: int, *services: str, metadata: str = PUBLISHED, **more: str | float) -> str:
    machine = f"{number:014x}"
    rows.put(
        "INSERT INTO machines (node, id, app, state, version, cordoned, metadata, created_at, generation) "
        "VALUES (?, ?, 'shop', ?, 'v1', ?, ?, 5.5, ?)",
        node, machine, more.get("state", "started"), more.get("cordoned", 0), metadata, more.get("generation", 1),
    )  # fmt: skip
    for place, service in enumerate(services):
        rows.put(
            "INSERT INTO services (node, machine, number, app, config) VALUES (?, ?, ?, 'shop', ?)",
            node, machine, place, service,
        )  # fmt: skip
    return machine


async def only(rows: Rows) -> MachineRoute:
    (route,) = await routes(rows).read()
    return route


async def test_published_machines_of_living_nodes_are_found_with_their_services_in_order() -> None:
    rows = Rows()
    wanted = put(rows, NEAR, 1, WEB, SLEEPER, cordoned=1)
    put(rows, NEAR, 2, WEB, metadata="{}")
    put(rows, NEAR, 3, WEB, metadata=f'{{"{PUBLISH}": "10.0.0.2"}}')
    put(rows, NEAR, 4, WEB, state="destroyed")
    put(rows, NEAR, 5)
    put(rows, ME, 6, WEB)
    put(rows, GONE, 7, WEB)
    route = await only(rows)
    assert (route.id, route.app, route.version, route.gate) == (wanted, "shop", "v1", GATE)
    assert [each.internal_port for each in route.services] == [8080, 81]
    assert route.cordoned and route.publish == EVERYWHERE and route.instance is None
    assert route.created_at == 5.5 and route.state is State.STARTED and route.autostart


@pytest.mark.parametrize(
    ("states", "worst"),
    [
        ((), RouteHealth.PASSING),
        (("passing", "warning"), RouteHealth.UNASKED),
        (("warning", "critical", "passing"), RouteHealth.CRITICAL),
    ],
)
async def test_the_worst_check_of_a_service_counts_and_no_other(states: tuple[str, ...], worst: RouteHealth) -> None:
    rows = Rows()
    machine = put(rows, NEAR, 1, WEB)
    for number, status in enumerate(states):
        name = f"servicecheck-{number:02}"
        rows.put("INSERT INTO health (node, machine, name, status) VALUES (?, ?, ?, ?)", NEAR, machine, name, status)
    rows.put("INSERT INTO health (node, machine, name, status) VALUES (?, ?, 'disk', 'critical')", NEAR, machine)
    assert (await only(rows)).health is worst


async def test_large_services_of_one_tenant_are_read_in_parts() -> None:
    rows = Rows()
    large = WEB.replace("http", "x" * 100_000)
    for number in range(12):
        put(rows, NEAR, number, large, SLEEPER)
        rows.put(
            "INSERT INTO health (node, machine, name, status) VALUES (?, ?, 'servicecheck-00', 'critical')",
            NEAR, f"{number:014x}",
        )  # fmt: skip
    narrow = Narrow(rows, 300_000)
    found = await routes(narrow).read()
    assert [each.id for each in found] == [f"{number:014x}" for number in range(12)]
    assert all(len(each.services) == 2 and each.health is RouteHealth.CRITICAL for each in found)
    assert narrow.refused and narrow.answered > 4


async def test_long_value_of_published_metadata_is_not_read_whole() -> None:
    rows = Rows()
    put(rows, NEAR, 1, WEB, metadata=f'{{"{PUBLISH}": "{"x" * 60_000}"}}')
    rows.put("INSERT INTO app_ips (node, app, ip) VALUES (?, 'shop', '203.0.113.7')", NEAR)
    (route,) = await routes(Narrow(rows, 10_000)).read()
    assert route.publish == ""


async def test_apps_with_addresses_are_reached_without_being_published() -> None:
    rows = Rows()
    for node, app, ip, shared, at in (
        (GONE, "shop", "203.0.113.7", 0, 9.0),
        (NEAR, "bank", "203.0.113.7", 0, 4.0),
        (NEAR, "shop", "198.51.100.1", 1, 5.0),
    ):
        rows.put(
            "INSERT INTO app_ips (node, app, ip, shared, created_at) VALUES (?, ?, ?, ?, ?)", node, app, ip, shared, at
        )
    put(rows, NEAR, 1, WEB, metadata="{}")
    assert (await only(rows)).publish == ""
    found = await routes(rows).addresses()
    assert [(each.app, each.ip, each.shared) for each in found] == [
        ("bank", "203.0.113.7", False),
        ("shop", "198.51.100.1", True),
        ("shop", "203.0.113.7", False),
    ]


async def test_of_two_rows_of_a_machine_the_later_generation_counts() -> None:
    rows = Rows()
    put(rows, NEAR, 1, WEB, state="stopped", generation=1)
    put(rows, GONE, 1, WEB, generation=2)
    assert (await only(rows)).state is State.STOPPED, "the other node is lost"


async def test_a_machine_that_lacks_one_of_its_services_is_left_out() -> None:
    rows = Rows()
    put(rows, NEAR, 1, "nonsense", SLEEPER)
    late = put(rows, NEAR, 2, WEB, SLEEPER)
    rows.put("DELETE FROM services WHERE machine = ? AND number = 0", late)
    put(rows, NEAR, 3, SLEEPER)
    route = await only(rows)
    assert [each.internal_port for each in route.services] == [81] and not route.autostart


async def test_nothing_is_read_where_no_port_can_be_published_and_a_failure_keeps_what_was_told() -> None:
    class Failing(Rows):
        failures = 1

        async def query(self, *given: object, **more: object) -> object:  # type: ignore[override]
            if self.failures:
                self.failures -= 1
                raise Unavailable("not now")
            return await super().query(*given, **more)  # type: ignore[arg-type]

    rows, told = Failing(), list[object]()
    put(rows, NEAR, 1, WEB)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(routes(rows, told).serve)
        await eventually(lambda: told)
        tasks.cancel_scope.cancel()
    assert rows.failures == 0 and len(told) >= 1
    silent: list[object] = []
    asked: list[object] = []

    def wanted() -> bool:
        asked.append(None)
        return False

    idle = routes(rows, silent)
    idle._wanted = wanted
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(idle.serve)
        await eventually(lambda: len(asked) >= 2)
        tasks.cancel_scope.cancel()
    assert silent == [((), ())]


async def test_the_number_of_an_apps_network_is_its_homes_word() -> None:
    rows = Rows()
    put(rows, NEAR, 1, WEB)
    assert ((await only(rows)).network, (await only(rows)).org) == (0, ""), "nobody has told it yet"
    for node, home, number in ((GONE, 0, 5), (NEAR, 1, 7)):
        record = f'{{"network_id": {number}, "org": "org{number}"}}'
        rows.put("INSERT INTO apps (node, name, home, record) VALUES (?, 'shop', ?, ?)", node, home, record)
    assert ((await only(rows)).network, (await only(rows)).org) == (7, "org7")


async def test_addresses_in_networks_that_are_here_are_served_also_by_a_host_that_serves_nobody_outside() -> None:
    rows = Rows()
    machine = put(rows, NEAR, 1, WEB, metadata="{}")
    for ip in ("fdaa:0:7::1:2", "fdaa:0:8::1:2", "nonsense"):
        rows.put("INSERT INTO private_ips (node, app, ip) VALUES (?, 'shop', ?)", NEAR, ip)
    assert [(each.ip, each.shared) for each in await routes(rows).addresses()] == [("fdaa:0:7::1:2", False)]
    assert (await only(rows)).id == machine
    told: list[tuple[Sequence[MachineRoute], Sequence[object]]] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(routes(rows, told, outside=False).serve)
        await eventually(lambda: bool(told))
        tasks.cancel_scope.cancel()
    assert [each.id for each in told[0][0]] == [machine] and len(told[0][1]) == 1


async def test_a_host_that_serves_nobody_any_more_is_told_of_nobody() -> None:
    rows = Rows()
    put(rows, NEAR, 1, WEB)
    rows.put("INSERT INTO private_ips (node, app, ip) VALUES (?, 'shop', 'fdaa:0:7::1:2')", NEAR)
    told: list[tuple[Sequence[MachineRoute], Sequence[object]]] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(routes(rows, told, outside=False).serve)
        await eventually(lambda: bool(told))
        rows.put("DELETE FROM private_ips")
        await eventually(lambda: told[-1] == ((), ()))
        tasks.cancel_scope.cancel()
    assert told[0] != ((), ())


def put_abroad(
    rows: Rows, node: str, number: int, *, region: str = "iad", publish: str = "*", service: str = WEB
) -> None:
    rows.put("INSERT OR REPLACE INTO nodes (node, region) VALUES (?, ?)", node, region)
    rows.put(
        "INSERT INTO served_machines (node, machine, app, publish, services) VALUES (?, ?, ?, ?, ?)",
        node, f"{number:014x}", "shop", publish, f"[{service}]" if number else "nonsense",
    )  # fmt: skip


async def test_regions_are_told_by_host_and_not_by_machine() -> None:
    rows = Rows()
    rows.put(
        "INSERT INTO apps (node, name, home, record) VALUES (?, 'shop', 1, ?)", NEAR, '{"network_id": 7, "org": "o"}'
    )
    put_abroad(rows, NEAR, 1)
    put_abroad(rows, NEAR, 2, publish="")
    put_abroad(rows, GONE, 3)
    (route,) = await routes(rows).read_regions()
    assert (route.id.partition("/")[0], route.app) == (f"shop@{NEAR}", "shop")
    assert (route.region, route.gate) == ("iad", GATE)
    assert (route.publish, route.network, route.org, route.away_ms) == (EVERYWHERE, 7, "o", 64)
    assert [each.internal_port for each in route.services] == [8080]


async def test_regions_are_told_of_each_set_of_services_that_an_apps_machines_on_a_host_have() -> None:
    """The groups of an app: each has ports of its own, and which of two sets stands first says nothing."""
    rows = Rows()
    for number, service in ((1, WEB), (2, SLEEPER), (3, WEB)):
        put_abroad(rows, NEAR, number, service=service)
    found = await routes(rows).read_regions()
    assert len({each.id for each in found}) == 2
    assert sorted(each.internal_port or 0 for route in found for each in route.services) == [81, 8080]
    rows.put("UPDATE served_machines SET publish = '' WHERE machine = ?", f"{2:014x}")
    assert [each.internal_port for route in await routes(rows).read_regions() for each in route.services] == [8080]
    rows.put("INSERT INTO app_ips (node, app, ip, shared) VALUES (?, 'shop', '198.51.100.1', 1)", NEAR)
    told = {each.services[0].internal_port: each.publish for each in await routes(rows).read_regions()}
    assert told == {8080: EVERYWHERE, 81: ""}, "each is published, or is not, for itself"


async def test_regions_with_many_sets_of_services_are_told_those_that_most_hosts_have() -> None:
    rows = Rows()
    rows.put("INSERT INTO nodes (node, region) VALUES (?, 'iad')", GONE)
    for number in range(1, MAX_SETS + 4):
        put_abroad(rows, NEAR, number, service=SLEEPER.replace("81", str(100 + number)))
    put_abroad(rows, GONE, 40, service=SLEEPER.replace("81", str(100 + number)))

    def gate_of(node: NodeId, app: AppName) -> GatePlace:
        return GatePlace(node=node, host="10.0.0.2", port=4291)

    far = FarRoutes(ME, "mad", rows, gate_of, lambda: True, tuple, lambda *_: None, SystemClock())
    found = await far.read_regions()
    assert len({each.services for each in found}) == MAX_SETS
    assert len([each for each in found if each.services[0].internal_port == 100 + number]) == 2


@pytest.mark.parametrize("published", [False, True])
async def test_regions_leave_out_what_nobody_may_reach_and_what_is_of_this_one(published: bool) -> None:
    rows = Rows()
    put_abroad(rows, NEAR, 1, publish="*" if published else "", region="mad" if published else "iad")
    put_abroad(rows, "dddddddd", 0, region="mad")
    assert await routes(rows).read_regions() == []
    if not published:
        rows.put("INSERT INTO app_ips (node, app, ip, shared) VALUES (?, 'shop', '198.51.100.1', 1)", NEAR)
        (route,) = await routes(rows).read_regions()
        assert route.publish == ""


async def test_regions_of_which_a_row_is_not_understood_keep_the_others() -> None:
    rows = Rows()
    put_abroad(rows, NEAR, 0)
    assert await routes(rows).read_regions() == []


async def test_regions_with_many_hosts_are_told_by_some_of_them() -> None:
    rows, told = Rows(), []
    for number in range(1, 9):
        put_abroad(rows, f"{number:08x}", number)

    def gate_of(node: NodeId, app: AppName) -> GatePlace:
        return GatePlace(node=node, host="10.0.0.2", port=4291)

    for me in (ME, NEAR):
        far = FarRoutes(me, "mad", rows, gate_of, lambda: True, tuple, lambda *_: None, SystemClock())
        told.append({each.id for each in await far.read_regions()})
    assert all(len(each) == MAX_HOSTS for each in told) and told[0] != told[1], "not all ask the same"


async def test_regions_are_read_less_often_than_machines_and_told_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rows are of the whole fleet, and change with configs alone."""
    monkeypatch.setattr(far_routes, "_EVERY_S", 0.01)
    asked = list[str]()

    class Counting(Rows):
        async def query(self, statement: Statement, *, timeout_s: float) -> ResultTable:
            asked.append(statement.query)
            return await super().query(statement, timeout_s=timeout_s)

    rows, told = Counting(), list[tuple[list[MachineRoute], object]]()
    put_abroad(rows, NEAR, 1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(routes(rows, told).serve)
        await eventually(lambda: len(told) >= 5)
        tasks.cancel_scope.cancel()
    assert sum("served_machines" in query for query in asked) == 1
    assert all([each.region for each in machines] == ["iad"] for machines, _ in told)
