"""An app is brought to where it is needed, as its home has it now."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.api.contract.app import DELETE_APP, DeleteAppQuery
from hawker.api.contract.secret import SET_SECRET, SecretParams, SetSecretRequest
from hawker.errors import NotFound, Unavailable
from hawker.gateway.apps import AppSync
from hawker.gateway.fan_out import FanOut, Reach
from hawker.gateway.owners import Owners
from hawker.ids import AppName
from hawker.record.app import APPS
from tests.gateway.town import APP, FAR, HERE, SHOP, Broker, Host, Town, town_of
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

NAME = AppName(APP)


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    """The app's home is the first; it has a secret."""
    async with town_of(tmp_path, HERE, HERE, FAR) as town:
        api = Broker(town, next(iter(town.hosts.values()))).api
        await api.app()
        await api.call(
            SET_SECRET, params=SecretParams(app_name=APP, secret_name="TOKEN"), body=SetSecretRequest(value="a")
        )
        yield town


def carrying(town: Town) -> AppSync:
    asking = FanOut(Reach(town, town))
    clock = next(iter(town.hosts.values())).worker.parts.deps.clock
    return AppSync(Owners(town, asking, clock), asking)


def secrets_of(host: Host) -> dict[str, str]:
    secrets = host.worker.parts.deps.secrets
    return {each.name: secrets.value(APP, each) for each in secrets.list(APP)}


async def test_an_app_arrives_with_its_secrets_and_knows_its_home(town: Town) -> None:
    home, _, far = town.hosts.values()
    await carrying(town).to(NAME, far.id, "ann")
    record = far.worker.store.get(APPS, APP)
    assert record is not None and record.home == home.id and secrets_of(far) == {"TOKEN": "a"}


async def test_nothing_is_carried_home(town: Town) -> None:
    home, *_ = town.hosts.values()
    home.calls.clear()
    await carrying(town).to(NAME, home.id, "ann")
    assert not home.calls


async def test_while_its_home_is_away_who_knows_it_goes_on_and_passes_it_on(town: Town) -> None:
    home, near, far = town.hosts.values()
    await carrying(town).to(NAME, far.id, "ann")
    home.cut = True
    await carrying(town).to(NAME, far.id, "ann")
    await carrying(town).to(NAME, near.id, "ann")
    assert secrets_of(near) == {"TOKEN": "a"}


async def test_where_nobody_who_knows_it_can_be_asked_that_is_said(town: Town) -> None:
    home, near, _ = town.hosts.values()
    home.cut = True
    with pytest.raises(Unavailable, match=home.id):
        await carrying(town).to(NAME, near.id, "ann")
    with pytest.raises(NotFound):
        await carrying(town).to(AppName("nobody"), near.id, "ann")


async def test_an_app_that_was_deleted_is_not_carried_from_a_memory(town: Town) -> None:
    home, near, far = town.hosts.values()
    await carrying(town).to(NAME, far.id, "ann")
    town.freeze()
    await Broker(town, home).api.call(DELETE_APP, params=SHOP, query=DeleteAppQuery(force=True))
    with pytest.raises(NotFound):
        await carrying(town).to(NAME, near.id, "ann")


async def test_all_that_know_it_are_brought_up_to_date(town: Town) -> None:
    home, near, far = town.hosts.values()
    for host in (near, far):
        await carrying(town).to(NAME, host.id, "ann")
    await home.worker.parts.deps.secrets.set(APP, {"TOKEN": "b"})
    far.cut = True
    told = await carrying(town).everywhere(NAME, "ann")
    assert secrets_of(near) == {"TOKEN": "b"} and [node for node, _ in told.silent] == [far.id]
