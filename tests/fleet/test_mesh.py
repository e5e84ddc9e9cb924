"""Facts about the way to other hosts' machines, from rows as the catalog has them."""

import base64
import dataclasses
from collections.abc import Mapping, Sequence

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.catalog.contract import ResultTable, Statement
from hawker.clock import ManualClock
from hawker.errors import Fault
from hawker.fleet.mesh import (
    KEEPALIVE_S,
    OWN,
    SILENT_S,
    FleetMesh,
    MachineAddress,
    MeshHost,
    TunnelWatch,
    plan_mesh,
    said,
)
from hawker.host.address import machine_prefix
from hawker.host.mesh.device import MemoryDevice, TunnelDevice
from hawker.host.mesh.wireguard import MeshKey, MeshPeer, MeshState, PeerTraffic, difference
from hawker.ids import MachineId, NodeId
from tests.fleet.test_failover_view import Rows

pytestmark = pytest.mark.anyio
ME, NEAR, FAR = NodeId("aaaaaaaa"), NodeId("bbbbbbbb"), NodeId("cccccccc")
MINE, THEIRS = 7, 8


def key_of(node: NodeId) -> str:
    return base64.b64encode(node.encode() * 4).decode()


def mesh_host(node: NodeId, number: int) -> MeshHost:
    return MeshHost(node=node, key=key_of(node), endpoint=f"10.0.0.{number}:4283")


HOSTS = [mesh_host(node, number) for number, node in enumerate((ME, NEAR, FAR), 1)]


def machine(number: int) -> MachineId:
    return MachineId(f"{number:014x}")


def to(number: int, network_id: int = MINE) -> str:
    return str(machine_prefix(network_id, machine(number)))


def test_each_machine_of_another_host_has_a_way_and_no_own_one_has() -> None:
    addresses = [MachineAddress(ME, machine(1), MINE), MachineAddress(NEAR, machine(2), MINE),
                 MachineAddress(FAR, machine(3), MINE), MachineAddress(NEAR, machine(4), MINE)]  # fmt: skip
    assert plan_mesh(HOSTS[0], HOSTS, addresses) == {
        key_of(NEAR): MeshPeer("10.0.0.2:4283", frozenset({to(2), to(4)}), KEEPALIVE_S),
        key_of(FAR): MeshPeer("10.0.0.3:4283", frozenset({to(3)}), KEEPALIVE_S),
    }


def test_a_machine_that_moved_here_has_no_way_elsewhere() -> None:
    moved = [MachineAddress(ME, machine(2), MINE), MachineAddress(NEAR, machine(2), MINE)]
    assert not plan_mesh(HOSTS[0], HOSTS, moved)
    assert plan_mesh(HOSTS[0], HOSTS, moved[::-1])


@pytest.mark.parametrize("same", [MeshHost(node=NEAR, key=key_of(NEAR), endpoint="10.0.0.1:9"),
                                  MeshHost(node=NEAR, key=key_of(ME), endpoint="10.0.0.2:4283")])  # fmt: skip
def test_a_node_of_the_same_host_or_with_the_same_key_has_no_tunnel(same: MeshHost) -> None:
    assert not plan_mesh(HOSTS[0], [same], [MachineAddress(NEAR, machine(2), MINE)])


@given(st.lists(st.tuples(st.sampled_from([ME, NEAR, FAR, NodeId("dddddddd")]), st.integers(0, 9), st.integers(7, 8))))
def test_each_address_has_one_peer_whatever_the_rows_say(rows: list[tuple[NodeId, int, int]]) -> None:
    plan = plan_mesh(
        HOSTS[0], HOSTS, [MachineAddress(node, machine(number), network) for node, number, network in rows]
    )
    listed = [each for peer in plan.values() for each in peer.allowed]
    assert len(listed) == len(set(listed))
    assert set(plan) <= {key_of(NEAR), key_of(FAR)}


class Own:
    """A key's file that somebody may replace."""

    def __init__(self) -> None:
        self.key = MeshKey("private", key_of(ME))
        self.other: MeshKey | None = None

    def renewed(self) -> bool:
        self.key, changed, self.other = self.other or self.key, self.other is not None, None
        return changed


class Device:
    """`broken` says why there is none."""

    def __init__(self) -> None:
        self.mesh = MemoryDevice()
        self.made = 0
        self.broken = ""
        self.taken: list[MeshKey] = []

    async def there(self) -> TunnelDevice:
        if self.broken:
            raise Fault(self.broken)
        self.made += 1
        return self.mesh

    @property
    def is_there(self) -> bool:
        return bool(self.made)

    def take(self, key: MeshKey) -> None:
        self.taken.append(key)

    @property
    def peers(self) -> Mapping[str, MeshPeer]:
        return self.mesh.read().peers


@pytest.fixture
def rows() -> Rows:
    rows = Rows()
    for host in HOSTS:
        rows.put("INSERT INTO mesh_hosts VALUES (?, ?, ?)", host.node, host.key, host.endpoint)
    return rows


def put(rows: Rows, node: NodeId, number: int, network_id: int = MINE, generation: int = 1) -> None:
    rows.put("INSERT INTO addresses VALUES (?, ?, 'web', ?, ?)", node, machine(number), network_id, generation)


def fleet(rows: Rows, device: Device, networks: Sequence[int] = (MINE,)) -> tuple[FleetMesh, ManualClock]:
    clock = ManualClock()
    return FleetMesh(HOSTS[0], Own(), rows, lambda: networks, device, clock, lambda: None), clock


async def test_a_host_whose_networks_are_all_its_own_has_no_device(rows: Rows) -> None:
    put(rows, ME, 1)
    put(rows, NEAR, 2, THEIRS)
    device = Device()
    await fleet(rows, device)[0].read()
    await fleet(rows, device, ())[0].read()
    assert not device.made


async def test_the_device_has_what_the_rows_say_and_of_two_the_later_generation(rows: Rows) -> None:
    put(rows, NEAR, 2, generation=1)
    put(rows, FAR, 2, generation=2)
    put(rows, NEAR, 3)
    device = Device()
    mesh, _ = fleet(rows, device)
    await mesh.read()
    assert {key: peer.allowed for key, peer in device.peers.items()} == {
        key_of(NEAR): {to(3)}, key_of(FAR): {to(2)}
    }  # fmt: skip
    rows.put("DELETE FROM addresses WHERE machine = ?", machine(3))
    await mesh.read()
    assert list(device.peers) == [key_of(FAR)]


@pytest.mark.parametrize(
    ("key", "endpoint"),
    [
        ("", "10.0.0.2:1"),
        ("x" * 44, "10.0.0.2:1"),
        (key_of(NEAR), "10.0.0.2"),
        (key_of(NEAR), "name:1"),
        (key_of(NEAR), "127.0.0.3:4283"),
        (key_of(NEAR), "10.0.0.2:70000"),
    ],
)
async def test_a_row_that_no_node_of_ours_writes_leads_nowhere(rows: Rows, key: str, endpoint: str) -> None:
    rows.put("UPDATE mesh_hosts SET public_key = ?, endpoint = ? WHERE node = ?", key, endpoint, NEAR)
    for odd in ("zz", "../../etc/passwd"):
        rows.put("INSERT INTO addresses VALUES (?, ?, 'web', ?, 1)", FAR, odd, MINE)
    put(rows, NEAR, 2)
    put(rows, FAR, 3)
    device = Device()
    await fleet(rows, device)[0].read()
    assert {key: peer.allowed for key, peer in device.peers.items()} == {key_of(FAR): {to(3)}}


async def test_a_change_of_the_device_by_somebody_is_mended_within_a_minute(rows: Rows) -> None:
    put(rows, NEAR, 2)
    device = Device()
    mesh, clock = fleet(rows, device)
    await mesh.read()
    sound = dict(device.peers)
    for other in ({}, {key_of(FAR): MeshPeer("10.0.0.3:1", frozenset({to(2), to(5)}))}):
        device.mesh.change(difference(device.peers, other), other)
        await mesh.read()
        assert device.peers == other, "it is not looked at each time"
        clock.advance(61)
        await mesh.read()
        assert device.peers == sound


async def test_a_device_that_went_away_is_made_anew_with_all_that_it_had(rows: Rows) -> None:
    put(rows, NEAR, 2)
    device = Device()
    mesh, _ = fleet(rows, device)
    await mesh.read()
    sound = dict(device.peers)
    device.mesh, device.made = MemoryDevice(), 0
    await mesh.read()
    assert device.peers == sound and device.made == 1


class Leaving(Rows):
    """The last machine goes while the catalog is asked."""

    networks: list[int]

    async def query(self, statement: Statement, *, timeout_s: float) -> ResultTable:
        self.networks.clear()
        return await super().query(statement, timeout_s=timeout_s)


@pytest.mark.parametrize("at", ["before it is asked", "while it is asked"])
async def test_device_that_a_node_removed_at_its_end_is_not_made_again(at: str) -> None:
    rows, device, networks = Leaving(), Device(), [MINE]
    rows.networks = []
    for host in HOSTS:
        rows.put("INSERT INTO mesh_hosts VALUES (?, ?, ?)", host.node, host.key, host.endpoint)
    put(rows, NEAR, 2)
    mesh, _ = fleet(rows, device, networks)
    await mesh.read()
    assert device.peers
    device.made = 0
    if at == "while it is asked":
        rows.networks = networks
    else:
        networks.clear()
    await mesh.read()
    assert not device.made and not networks


class Slow(Device):
    """A device that is made for as long as `hold` is not set."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.hold = anyio.Event(), anyio.Event()

    async def there(self) -> TunnelDevice:
        self.begun.set()
        await self.hold.wait()
        return await super().there()


async def test_the_end_waits_for_a_device_that_is_being_made_and_none_is_made_after_it(rows: Rows) -> None:
    put(rows, NEAR, 2)
    device = Slow()
    mesh, _ = fleet(rows, device)
    seen: list[int] = []

    async def end() -> None:
        await mesh.end()
        seen.append(device.made)
        device.made = 0  # it is removed

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mesh.read)
        await device.begun.wait()
        tasks.start_soon(end)
        await anyio.wait_all_tasks_blocked()
        assert not seen
        device.hold.set()
    assert seen == [1]
    await mesh.read()
    assert not device.made


async def test_peers_of_an_earlier_daemon_go(rows: Rows) -> None:
    device = Device()
    stale = {key_of(FAR): MeshPeer("10.0.0.3:1", frozenset({to(5)}))}
    device.mesh.change(difference({}, stale), stale)
    device.made = 1
    await fleet(rows, device)[0].read()
    assert not device.peers


async def test_a_host_without_a_device_says_why_and_goes_on_when_there_is_one(rows: Rows) -> None:
    put(rows, NEAR, 2)
    device = Device()
    device.broken = "this host has no WireGuard"
    mesh, _ = fleet(rows, device)
    with pytest.raises(Fault, match="no WireGuard"):
        await mesh.read()
    device.broken = ""
    await mesh.read()
    assert device.peers


async def test_a_new_key_is_the_devices_and_what_others_are_told(rows: Rows) -> None:
    put(rows, NEAR, 2)
    own, device, news = Own(), Device(), list[str]()
    mesh = FleetMesh(HOSTS[0], own, rows, lambda: (MINE,), device, ManualClock(), lambda: news.append("changed"))

    def told() -> str:
        (row,) = mesh.source.rows(OWN)
        return str(row.values[0])

    await mesh.read()
    made, peers = device.made, dict(device.peers)
    assert told() == key_of(ME) and not news and not device.taken
    own.other = MeshKey("another", key_of(NodeId("eeeeeeee")))
    await mesh.read()
    assert told() == key_of(NodeId("eeeeeeee")) and news == ["changed"] and device.taken == [own.key]
    assert device.made == made + 1 and device.peers == peers, "the device is told at once, and its peers stay"
    await mesh.read()
    assert news == ["changed"] and device.made == made + 1


def test_others_give_the_addresses_of_a_host_to_its_new_key_and_forget_the_old_one() -> None:
    addresses = [MachineAddress(NEAR, machine(2), MINE)]
    before = plan_mesh(HOSTS[0], HOSTS, addresses)
    again = MeshHost(node=NEAR, key=key_of(NodeId("eeeeeeee")), endpoint=HOSTS[1].endpoint)
    after = plan_mesh(HOSTS[0], [again], addresses)
    found = MemoryDevice()
    for wanted in (before, after):
        found.change(difference(found.read().peers, wanted), wanted)
    assert found.read().peers == {again.key: MeshPeer(again.endpoint, frozenset({to(2)}), KEEPALIVE_S)}


PEERS = {key_of(NEAR): MeshPeer("10.0.0.2:4283"), key_of(FAR): MeshPeer("10.0.0.3:4283")}


def looked(watch: TunnelWatch, now: float, near: tuple[float, int], far: tuple[float, int]) -> list[str]:
    """Who is silent. Each figure is the last handshake and the bytes that came."""
    traffic = {key_of(NEAR): PeerTraffic(*near), key_of(FAR): PeerTraffic(*far)}
    watch.look(PEERS, traffic, now)
    return sorted(watch.silent)


def test_a_tunnel_without_a_handshake_is_silent_and_one_with_any_is_not() -> None:
    watch = TunnelWatch()
    assert looked(watch, 0.0, (0.0, 0), (1e9, 100)) == []
    for number in range(1, 4):
        assert looked(watch, number * 60.0, (0.0, 0), (1e9 + 120 * (number // 2), 100)) == []
    assert looked(watch, 240.0, (0.0, 0), (1e9 + 240, 100)) == [key_of(NEAR)]
    assert watch.silent[key_of(NEAR)].seconds == 240.0
    assert looked(watch, 300.0, (1e9 + 299, 0), (1e9 + 240, 100)) == [], "it is well again"


def test_a_silent_tunnel_says_which_direction_is_broken() -> None:
    watch = TunnelWatch()
    for number in range(5):  # both shook hands before; one of them still knocks
        looked(watch, number * 60.0, (1e9, 148 * number), (1e9, 100 if number < 3 else 132))
    near, far = watch.silent[key_of(NEAR)], watch.silent[key_of(FAR)]
    assert (near.heard, far.heard) == (True, False), "what came earlier, before it broke, is no sign"
    assert "hears nothing of this host" in said(near) and "is not heard by this host" in said(far)


def test_a_clock_that_jumps_and_a_peer_that_is_new_or_gone_make_no_tunnel_silent() -> None:
    watch = TunnelWatch()
    assert looked(watch, 0.0, (1e9, 0), (1e9, 0)) == []
    assert looked(watch, 120.0, (1e9 + 90_000, 0), (1e9 - 90_000, 0)) == []
    assert looked(watch, 240.0, (1e9 + 90_120, 0), (1e9 - 89_880, 0)) == []
    watch.look({}, {}, 1000.0)
    assert looked(watch, 2000.0, (1e9, 0), (1e9, 0)) == [], "they are new"


class Talking(MemoryDevice):
    """`traffic` is what it says of its peers."""

    traffic: Mapping[str, PeerTraffic] = {}

    def read(self) -> MeshState:
        return dataclasses.replace(super().read(), traffic=self.traffic)


async def test_a_host_that_shakes_no_hands_is_named_and_no_more_once_its_machines_are_gone(rows: Rows) -> None:
    put(rows, NEAR, 2)
    put(rows, FAR, 3)
    device = Device()
    device.mesh = talking = Talking()
    mesh, clock = fleet(rows, device)
    for number in range(5):
        talking.traffic = {key_of(FAR): PeerTraffic(1e9 + number, number)}
        await mesh.read()
        clock.advance(61)
    assert clock.monotonic() > SILENT_S and [node for node, _ in mesh.silent] == [NEAR]
    rows.put("DELETE FROM addresses WHERE node = ?", NEAR)
    await mesh.read()
    assert list(mesh.silent) == []
