"""Names of other nodes' machines, from rows as the catalog has them."""

from collections.abc import Sequence

import msgspec
import pytest

from hawker.clock import SystemClock
from hawker.errors import Unavailable
from hawker.fleet.names import FleetNames
from hawker.ids import AppName, NodeId
from hawker.names import NamedApp, NamedMachine
from tests.fleet.test_failover_view import Rows

pytestmark = pytest.mark.anyio
ME, NEAR, GONE = NodeId("aaaaaaaa"), NodeId("bbbbbbbb"), NodeId("cccccccc")
MINE, THEIRS = 7, 8


class Told:
    def __init__(self) -> None:
        self.apps: Sequence[NamedApp] = ()
        self.machines: Sequence[NamedMachine] = ()

    def __call__(self, apps: Sequence[NamedApp], machines: Sequence[NamedMachine]) -> None:
        self.apps, self.machines = apps, machines


def fleet(rows: Rows, told: Told, *networks: int) -> FleetNames:
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
