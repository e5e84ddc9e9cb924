"""Whose a private network's number is, while brokers ask at the same moment and nodes are away."""

from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path

import anyio
import pytest

from hawker.app import network_id, network_ids
from hawker.errors import Unavailable
from hawker.gateway.fan_out import FanOut, Reach
from hawker.gateway.name_quorum import keepers
from hawker.gateway.network_claims import NetworkClaims
from hawker.netpolicy.private_networks import keep, settled
from hawker.record.app import APPS, NetworkOwner
from tests.gateway.town import FAR, HERE, Broker, Host, Town, town_of
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

THIEF = NetworkOwner(org="thief", network="lab")
FIRST, SECOND = islice(network_ids(THIEF.org, THIEF.network), 2)


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
