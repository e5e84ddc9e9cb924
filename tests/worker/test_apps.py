import pytest

from hawker.app import network_id
from hawker.clock import ManualClock
from hawker.errors import NameTaken, NotFound, WrongState
from hawker.store.memory_store import MemoryStore
from hawker.volume.table import VolumeTable
from hawker.worker.apps import AppTable
from hawker.worker.changes import Changes
from hawker.worker.table import MachineTable
from tests.worker.machines import machine

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def apps(store: MemoryStore) -> AppTable:
    return AppTable(store, ManualClock(), VolumeTable(ManualClock()))


def test_a_network_has_the_same_number_on_every_host() -> None:
    assert network_id("acme", "default") == network_id("acme", "default")
    assert len({network_id(org, name) for org in ("acme", "zeta") for name in ("default", "back")}) == 4
    assert 0 <= network_id("acme", "default") < 1 << 32


async def test_apps_of_one_network_can_reach_each_other(apps: AppTable) -> None:
    first = await apps.create("first", org="acme", network=None, key=None)
    second = await apps.create("second", org="acme", network=None, key=None)
    third = await apps.create("third", org="acme", network="back", key=None)
    assert first.network_id == second.network_id != third.network_id


async def test_a_key_makes_the_same_app_once(apps: AppTable) -> None:
    first = await apps.create("shop", org=None, network=None, key="key")
    assert await apps.create("shop", org=None, network=None, key="key") == first
    with pytest.raises(NameTaken):
        await apps.create("shop", org=None, network=None, key=None)


async def test_an_app_with_machines_is_kept(store: MemoryStore, apps: AppTable) -> None:
    await apps.create("stall", org=None, network=None, key=None)
    table = MachineTable(ManualClock(), Changes())
    await store.write(lambda tx: table.insert(tx, machine()))
    with pytest.raises(WrongState, match="still has 1 machines"):
        await apps.delete("stall")
    assert apps.machine_count(store, "stall") == 1


async def test_a_deleted_app_is_gone(store: MemoryStore, apps: AppTable) -> None:
    await apps.create("shop", org="acme", network=None, key=None)
    assert [app.name for app in apps.list("acme")] == ["shop"] and apps.list("zeta") == []
    await apps.delete("shop")
    assert apps.list(None) == []
    with pytest.raises(NotFound, match="app not found"):
        apps.get(store, "shop")
