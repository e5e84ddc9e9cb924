"""An app whose home was forgotten gets another: the node that knows most of it, and never while the home may live."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.api.contract.machine import CREATE_MACHINE, CreateMachineRequest
from hawker.api.contract.market import PLACE, PlaceRequest
from hawker.api.contract.owner import CARRY_APP, SETTLE_HOME, HomeRequest
from hawker.api.contract.secret import SET_SECRET, SecretParams, SetSecretRequest
from hawker.api.in_process import InProcessCaller
from hawker.errors import Conflict, NotFound, Unavailable
from hawker.gateway.apps import AppSync
from hawker.gateway.fan_out import FanOut, Reach
from hawker.gateway.owners import HomeElection, Owners
from hawker.ids import AppName
from hawker.record.app import APPS, AppRecord
from hawker.sim.node.sim_worker import config_of
from tests.gateway.town import APP, HERE, SHOP, Broker, Host, Town, town_of
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

NAME = AppName(APP)


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    """The first node is the app's home; the third was told of its secret, the second of none."""
    async with town_of(tmp_path, HERE, HERE, HERE) as town:
        home, second, third = town.hosts.values()
        await Broker(town, home).api.app()
        await carrying(town).to(NAME, second.id, "ann")
        await set_secret(town, home, "a")
        await carrying(town).to(NAME, third.id, "ann")
        yield town


async def set_secret(town: Town, beside: Host, value: str) -> None:
    params = SecretParams(app_name=APP, secret_name="TOKEN")
    await Broker(town, beside).api.call(SET_SECRET, params=params, body=SetSecretRequest(value=value))


def owners(town: Town) -> tuple[Owners, FanOut]:
    asking = FanOut(Reach(town, town))
    clock = next(iter(town.hosts.values())).worker.parts.deps.clock
    return Owners(town, asking, clock), asking


def carrying(town: Town) -> AppSync:
    return AppSync(*owners(town))


def heirs(town: Town) -> HomeElection:
    return HomeElection(*owners(town), town.forgotten)


def record(host: Host) -> AppRecord:
    found = host.worker.store.get(APPS, APP)
    assert found is not None
    return found


def secrets_of(host: Host) -> dict[str, str]:
    secrets = host.worker.parts.deps.secrets
    return {each.name: secrets.value(NAME, each) for each in secrets.list(NAME)}


async def test_a_home_that_is_there_stays(town: Town) -> None:
    home, *_ = town.hosts.values()
    assert await heirs(town).home(NAME, "ann") == home.id
    assert await heirs(town).home(AppName("nobodys"), "ann") is None


async def test_one_that_is_down_and_not_forgotten_stays_the_home(town: Town) -> None:
    home, second, third = town.hosts.values()
    del town.hosts[home.id]  # its rows have not come here
    assert await heirs(town).home(NAME, "ann") is None
    assert [record(host).reign for host in (second, third)] == [0, 0]


async def test_the_node_that_knows_most_becomes_the_home_and_all_follow(town: Town) -> None:
    home, second, third = town.hosts.values()
    town.forget(home)
    await set_secret(town, second, "b")
    assert (record(third).home, record(third).reign) == (None, 1)
    assert secrets_of(third) == {"TOKEN": "b"}
    await carrying(town).to(NAME, second.id, "ann")
    assert (record(second).home, record(second).reign) == (third.id, 1)
    assert secrets_of(second) == {"TOKEN": "b"}


async def test_orders_with_a_key_go_on_with_the_new_home(town: Town) -> None:
    home, second, _ = town.hosts.values()
    town.forget(home)
    body = CreateMachineRequest(config=config_of(), skip_launch=True)
    broker = Broker(town, second)
    made = [await broker.api.call(CREATE_MACHINE, params=SHOP, body=body, idempotency_key="k") for _ in range(2)]
    assert made[0].id == made[1].id
    placed = await broker.api.call(PLACE, body=PlaceRequest(app=APP, machine=body), idempotency_key="l")
    assert placed.filled == 1


async def test_an_old_home_that_comes_back_yields(town: Town) -> None:
    home, _, third = town.hosts.values()
    town.forget(home)
    assert await heirs(town).home(NAME, "ann") == third.id
    town.hosts[home.id] = home
    assert town.home_of_app(NAME) == third.id
    await carrying(town).to(NAME, home.id, "ann")
    assert (record(home).home, record(home).reign) == (third.id, 1)


async def test_an_old_home_s_bundle_changes_nothing(town: Town) -> None:
    home, second, third = town.hosts.values()
    packed = await carrying(town)._packed(NAME, "ann", only_home=False)
    town.forget(home)
    await heirs(town).home(NAME, "ann")
    await set_secret(town, second, "b")
    api = InProcessCaller(third.handlers, third.worker.parts.deps.clock, "ann")
    await api.call(CARRY_APP, params=SHOP, body=packed)
    assert record(third).home is None and secrets_of(third) == {"TOKEN": "b"}


async def test_a_node_takes_over_only_from_whom_it_took_for_the_home(town: Town) -> None:
    home, second, third = town.hosts.values()
    api = InProcessCaller(third.handlers, third.worker.parts.deps.clock, "ann")
    with pytest.raises(Conflict, match=f"the home of app 'shop' is {home.id}, and not {second.id}"):
        await api.call(SETTLE_HOME, params=SHOP, body=HomeRequest(old=second.id, take=True))
    for _ in range(2):
        copy = await api.call(SETTLE_HOME, params=SHOP, body=HomeRequest(old=home.id, take=True))
        assert (copy.home, copy.reign, copy.number) == (third.id, 1, 1)


async def test_with_nobody_left_who_knows_the_app_it_is_gone(town: Town) -> None:
    home, second, third = town.hosts.values()
    for host in (second, third):
        await host.worker.store.write(lambda tx: tx.delete(APPS, APP))
    town.forget(home)
    with pytest.raises(NotFound):
        await set_secret(town, second, "b")


async def test_while_those_who_know_the_app_are_away_nothing_is_done(town: Town) -> None:
    home, second, third = town.hosts.values()
    town.forget(home)
    second.cut = third.cut = True
    with pytest.raises(Unavailable):
        await set_secret(town, second, "b")
