"""WireGuard peers in the store, and the device that is told of them."""

import base64
from collections.abc import Collection

import anyio
import msgspec
import pytest

from hawker.api.contract.app import CREATE_APP, CreateAppRequest
from hawker.errors import Fault, NotFound, NotServed, Unavailable, Unprocessable
from hawker.host.mesh.peer_gateway import PeerPlace
from hawker.ids import MachineId, NodeId
from hawker.netpolicy.private_networks import settle
from hawker.netpolicy.wireguard_peers import MAX_PEERS_OF_ORG, GatewayFacts, PeerKeeper, PeerTable
from hawker.record.app import APPS, NETWORKS, WIREGUARD_PEERS, NetworkOwner
from hawker.record.machine import networks_here
from hawker.sim.node.sim_worker import SimWorker
from tests.simulated_worker import anyio_backend, stall, worker

__all__ = ["anyio_backend", "stall", "worker"]
pytestmark = pytest.mark.anyio
ME, OTHER = NodeId("0000000a"), NodeId("0000000b")
FACTS = GatewayFacts("gateway.example.com:51820", "public")


def key(number: int) -> str:
    return base64.b64encode(number.to_bytes(32, "big")).decode()


@pytest.fixture
def peers(worker: SimWorker) -> PeerTable:
    return table(worker)


def table(worker: SimWorker, node: NodeId = ME, *, in_fleet: bool = False) -> PeerTable:
    return PeerTable(node, worker.store, worker.parts.deps.clock, lambda: FACTS, in_fleet=in_fleet)


async def test_a_peer_is_in_the_network_of_the_apps_and_keeps_its_address(worker: SimWorker, peers: PeerTable) -> None:
    await worker.api.call(CREATE_APP, body=CreateAppRequest(name="web", org_slug="ada"))
    app = worker.store.get(APPS, "web")
    made = await peers.put("ada", "laptop", None, key(1))
    assert app is not None and made.network_id == app.network_id
    again = await peers.put("ada", "laptop", None, key(2))
    assert (again.id, again.created_at, again.public_key) == (made.id, made.created_at, key(2))
    other = await peers.put("ada", "phone", "dev", key(3))
    assert other.network_id != made.network_id and other.id != made.id
    assert [each.name for each in peers.list("ada")] == ["laptop", "phone"] and peers.list("eve") == []
    assert {made.network_id, other.network_id} <= networks_here(worker.store), "the mesh leads to them, too"
    await peers.delete("ada", "laptop")
    with pytest.raises(NotFound):
        await peers.delete("ada", "laptop")
    assert made.network_id not in networks_here(worker.store)


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("", key(1)),
        ("Laptop", key(1)),
        ("a" * 64, key(1)),
        ("a/b", key(1)),
        ("a", ""),
        ("a", "x" * 44),
        ("a", key(1)[:-4]),
        ("a", key(0)[:-2] + "B="),
    ],
)
async def test_a_name_or_key_that_is_none_is_refused(peers: PeerTable, name: str, public: str) -> None:
    with pytest.raises(Unprocessable):
        await peers.put("ada", name, None, public)


async def test_two_peers_never_have_one_key_and_an_organization_has_so_many(peers: PeerTable) -> None:
    await peers.put("ada", "laptop", None, key(1))
    with pytest.raises(Unprocessable, match="another peer"):
        await peers.put("eve", "laptop", None, key(1))
    for number in range(2, MAX_PEERS_OF_ORG + 1):
        await peers.put("ada", f"p{number}", None, key(number))
    with pytest.raises(Unprocessable, match="at most"):
        await peers.put("ada", "more", None, key(9999))
    await peers.put("eve", "laptop", None, key(9999))


async def test_in_a_fleet_a_peer_has_the_number_that_the_fleet_told_or_none(worker: SimWorker) -> None:
    peers, dev = table(worker, in_fleet=True), NetworkOwner(org="ada", network="dev")
    claimed = worker.store.count(NETWORKS)
    with pytest.raises(Unavailable, match="try again"):
        await peers.put("ada", "laptop", "dev", key(1))
    assert worker.store.count(NETWORKS) == claimed and peers.list("ada") == []
    await worker.store.write(lambda tx: settle(tx, 77, dev))
    assert (await peers.put("ada", "laptop", "dev", key(1))).network_id == 77


async def test_a_name_at_two_gateways_has_two_addresses_and_one_that_is_there_stays(
    worker: SimWorker, peers: PeerTable
) -> None:
    made = await peers.put("ada", "laptop", None, key(1))
    await peers.delete("ada", "laptop")
    other = await table(worker, OTHER).put("ada", "laptop", None, key(1))
    assert other.id != made.id
    old = msgspec.structs.replace(other, id=MachineId("0" * 14))
    await worker.store.write(lambda tx: tx.put(WIREGUARD_PEERS, "ada/laptop", old))
    assert (await peers.put("ada", "laptop", None, key(2))).id == old.id


async def test_a_node_without_the_setting_lets_nobody_in(worker: SimWorker) -> None:
    plain = PeerTable(ME, worker.store, worker.parts.deps.clock, None, in_fleet=False)
    with pytest.raises(NotServed, match="--wireguard-listen"):
        await plain.put("ada", "laptop", None, key(1))
    with pytest.raises(NotServed):
        plain.list("ada")


class PlayedEntrance:
    def __init__(self) -> None:
        self.told: list[Collection[PeerPlace]] = []
        self.broken = True

    async def tell(self, places: Collection[PeerPlace]) -> None:
        if self.broken:
            raise Fault("there is no WireGuard")
        self.told.append(places)


async def test_the_device_is_told_of_each_change_and_again_after_it_was_away(
    worker: SimWorker, peers: PeerTable
) -> None:
    entrance, clock = PlayedEntrance(), worker.parts.deps.clock
    keeper = PeerKeeper(worker.store, entrance, clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keeper.serve)
        await clock.sleep(2.0)
        assert keeper.lack == "there is no WireGuard" and not entrance.told
        entrance.broken = False
        made = await peers.put("ada", "laptop", None, key(1))
        await clock.sleep(1.0)
        place = PeerPlace(key(1), made.network_id, made.id)
        assert entrance.told[-1] == {place} and keeper.lack == ""
        count = len(entrance.told)
        await clock.sleep(30.0)
        assert len(entrance.told) == count, "told once"
        await clock.sleep(40.0)
        assert len(entrance.told) == count + 1, "and compared once a minute"
        await peers.delete("ada", "laptop")
        await clock.sleep(1.0)
        assert entrance.told[-1] == frozenset()
        tasks.cancel_scope.cancel()
