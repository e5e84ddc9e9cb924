"""Whose a private network's number is, while brokers ask at the same moment and nodes are away."""

import base64
from collections.abc import AsyncIterator
from ipaddress import IPv6Address
from itertools import islice
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from hawker.api.contract.app import ASSIGN_IP, CREATE_APP, AssignIpRequest, CreateAppRequest
from hawker.api.contract.private_network import PUT_PEER, WireguardPeer, WireguardPeerParams, WireguardPeerRequest
from hawker.app import network_id, network_ids
from hawker.errors import NotServed, Unavailable, Unprocessable
from hawker.gateway.claims import NetworkClaims, keepers
from hawker.gateway.fan_out import FanOut, Reach
from hawker.host.address import network_prefix
from hawker.netpolicy import private_networks
from hawker.netpolicy.private_networks import keep, settled
from hawker.netpolicy.wireguard_peers import GatewayFacts
from hawker.record.app import APPS, NetworkOwner
from hawker.up.wiring import node_handlers
from tests.gateway.town import FAR, HERE, SHOP, Broker, Host, Town, town_of
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

THIEF = NetworkOwner(org="thief", network="lab")
FIRST, SECOND = islice(network_ids(THIEF.org, THIEF.network), 2)
KEY = base64.b64encode(bytes(32)).decode()
LAPTOP = WireguardPeerParams(org_slug=THIEF.org, peer="laptop")


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with town_of(tmp_path, HERE, HERE, HERE, FAR) as town:
        yield town


def claims(town: Town) -> NetworkClaims:
    return NetworkClaims(town, town, FanOut(Reach(town, town)))


def kept_by(town: Town, number: int) -> list[Host]:
    return [town.hosts[node] for node in keepers(f"network:{number}", town.hosts)]


async def number(town: Town, owner: NetworkOwner) -> int | None:
    home = next(iter(town.hosts.values()))
    await claims(town).settle(owner.org, owner.network, home.id, "ann")
    return settled(home.worker.store, owner)


async def test_a_new_network_has_the_number_of_old_and_keeps_it(town: Town) -> None:
    assert await number(town, THIEF) == FIRST == network_id("thief", "lab")
    assert await number(town, THIEF) == FIRST


async def test_two_pairs_never_have_one_number_though_no_catalog_says_so(town: Town) -> None:
    town.freeze()
    victim = NetworkOwner(org="victim", network="default")
    for host in kept_by(town, FIRST):
        await host.worker.store.write(lambda tx: keep(tx, FIRST, victim))
    assert await number(town, THIEF) == SECOND


async def test_a_network_with_the_majority_has_the_number(town: Town) -> None:
    lost, *_ = kept_by(town, FIRST)
    await lost.worker.store.write(lambda tx: keep(tx, FIRST, NetworkOwner(org="other", network="default")))
    assert await number(town, THIEF) == FIRST


async def test_brokers_that_ask_at_once_come_to_the_same_number(town: Town) -> None:
    found: list[int | None] = []

    async def one(host: Host) -> None:
        await claims(town).settle(THIEF.org, THIEF.network, host.id, "ann")
        found.append(settled(host.worker.store, THIEF))

    async with anyio.create_task_group() as tasks:
        for host in town.hosts.values():
            tasks.start_soon(one, host)
    assert set(found) == {FIRST}


async def test_a_new_network_is_refused_without_a_majority_and_an_existing_one_asks_nobody(town: Town) -> None:
    home = next(iter(town.hosts.values()))
    await Broker(town, home).api.app("shop", network="back")
    for host in town.hosts.values():
        host.down = host is not home
    with pytest.raises(Unavailable, match="too few nodes answer"):
        await claims(town).settle("personal", "new", home.id, "ann")
    await claims(town).settle("personal", "back", home.id, "ann")


async def test_an_app_has_the_number_that_the_majority_said(town: Town) -> None:
    first, second, *_ = town.hosts.values()
    for host in kept_by(town, network_id("personal", "back")):
        await host.worker.store.write(
            lambda tx: keep(tx, network_id("personal", "back"), NetworkOwner(org="victim", network="default"))
        )
    await Broker(town, first).api.app("shop", network="back")
    await Broker(town, second).api.app("till", network="back")
    numbers = {host.worker.store.get(APPS, name) for host, name in ((first, "shop"), (second, "till"))}
    assert {record.network_id for record in numbers if record} == {list(islice(network_ids("personal", "back"), 2))[1]}


async def taken(town: Town, number: int, without: Host) -> None:
    """Another's network has the number, and `without` has not heard of it."""
    victim = NetworkOwner(org="victim", network="default")
    for host in kept_by(town, number):
        if host is not without:
            await host.worker.store.write(lambda tx: keep(tx, number, victim))


def gateway_at(town: Town) -> Host:
    """One of the town's nodes lets WireGuard peers in."""
    host = next(iter(town.hosts.values()))
    parts = replace(host.worker.parts, gateway=lambda: GatewayFacts("gateway.example.com:51820", KEY))
    host.handlers = node_handlers(parts, bundler=object())  # type: ignore[arg-type]  # that the node is in a fleet
    return host


def asked_to_keep(town: Town) -> list[str]:
    return [host.id for host in town.hosts.values() for name, _ in host.calls if name == "keep_network"]


@pytest.mark.parametrize("apart", [False, True])
async def test_a_peer_is_in_the_network_that_the_majority_said(town: Town, apart: bool) -> None:
    gateway = gateway_at(town)
    await taken(town, FIRST, gateway)
    body = WireguardPeerRequest(pubkey=KEY, network=THIEF.network)
    made: WireguardPeer = await Broker(town, gateway, apart=apart).api.call(PUT_PEER, params=LAPTOP, body=body)
    assert made.allowed_ips == str(network_prefix(SECOND))


@pytest.mark.parametrize("apart", [False, True])
async def test_nothing_is_claimed_for_a_peer_that_is_refused(town: Town, apart: bool) -> None:
    gateway = gateway_at(town)
    broker, body = Broker(town, gateway, apart=apart), WireguardPeerRequest(pubkey=KEY, network=THIEF.network)
    for params, each in (
        (replace(LAPTOP, peer="Laptop"), body),
        (LAPTOP, replace(body, pubkey="x")),
        (LAPTOP, replace(body, network="a/b")),
    ):
        with pytest.raises(Unprocessable):
            await broker.api.call(PUT_PEER, params=params, body=each)
    *_, plain = (host for host in town.hosts.values() if host is not gateway)
    with pytest.raises(NotServed, match="--wireguard-listen"):
        await Broker(town, plain, apart=apart).api.call(PUT_PEER, params=LAPTOP, body=body)
    assert asked_to_keep(town) == []


@pytest.mark.parametrize("org", [None, "personal"])
async def test_an_address_of_an_app_is_in_the_network_that_the_majority_said(town: Town, org: str | None) -> None:
    home = next(iter(town.hosts.values()))
    api = Broker(town, home).api
    await api.app()
    first, second = islice(network_ids("personal", "lab"), 2)
    await taken(town, first, home)
    body = AssignIpRequest(type="private_v6", network="lab", org_slug=org)
    made = await api.call(ASSIGN_IP, params=SHOP, body=body)
    assert IPv6Address(made.ip) in network_prefix(second)


async def test_an_app_that_the_catalog_still_knows_is_made_anew_in_its_own_network(town: Town) -> None:
    home = next(iter(town.hosts.values()))
    api = Broker(town, home).api
    await api.app(idempotency_key="once")
    town.freeze()
    await home.worker.parts.apps.delete("shop")
    first, second = islice(network_ids("personal", "lab"), 2)
    await taken(town, first, home)
    await api.call(CREATE_APP, body=CreateAppRequest(name="shop", network="lab", idempotency_key="once"))
    record = home.worker.store.get(APPS, "shop")
    assert record is not None and record.network_id == second


async def test_an_organization_that_claimed_too_many_is_told_so(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_networks, "MAX_NETWORKS_OF_ORG", 0)
    with pytest.raises(Unprocessable, match="use the name of a network that it has"):
        await number(town, THIEF)
