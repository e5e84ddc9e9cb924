"""What of an app travels between nodes: all that its machines need, sealed, and never back to what it was."""

import msgspec
import pytest

from hawker.api.contract.market import OrderedApp
from hawker.clock import ManualClock
from hawker.deploys.releases import ReleaseTable
from hawker.errors import Conflict, NotFound, Unavailable
from hawker.fleet.app_bundle import CARRIED_RELEASES, CROSSING_S, AppBundler
from hawker.ids import AppName, MachineId, NodeId
from hawker.netpolicy.policies import Policies
from hawker.policy import Direction
from hawker.record.app import APPS, PolicyRule, PolicySelector
from hawker.record.machine import BY_APP, MachineKey
from hawker.secret.secrets import Secrets
from hawker.store.memory_store import MemoryStore
from hawker.vault import Vault
from hawker.volume.table import VolumeTable
from hawker.worker.apps import AppTable

pytestmark = pytest.mark.anyio

SHOP = AppName("shop")
OLD, NEW = bytes(32), bytes([7] * 32)


class Place:
    """What a node has of apps; each seals under a key of its own."""

    def __init__(self, number: int, clock: ManualClock, *keys: bytes) -> None:
        self.node = NodeId(f"{number:08x}")
        self.store, self.clock = MemoryStore(), clock
        self.secrets = Secrets(self.store, Vault(bytes([number] * 32), clock), clock)
        self.apps = AppTable(self.store, clock, VolumeTable(clock, 0))
        self.policies = Policies(self.store, clock)
        vaults = [Vault(key, clock) for key in keys or (OLD,)]
        self.porter = AppBundler(self.store, self.secrets, clock, self.node, lambda: vaults)

    async def made(self, **values: str) -> None:
        await self.apps.create(SHOP, org=None, network=None, key=None)
        await self.secrets.set(SHOP, values)

    async def policy(self) -> None:
        rules = (PolicyRule(direction=Direction.INGRESS),)
        await self.policies.put(SHOP, policy_id=None, name="p", selector=PolicySelector(all=True), rules=rules)

    def packed(self) -> OrderedApp:
        record = self.store.get(APPS, SHOP)
        assert record is not None
        fields = {
            key: value for key, value in msgspec.structs.asdict(record).items() if key in OrderedApp.__struct_fields__
        }
        return OrderedApp(**fields, luggage=self.porter.pack(self.store, record))

    def values(self) -> dict[str, str]:
        return {each.name: self.secrets.value(SHOP, each) for each in self.secrets.list(SHOP)}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def home(clock: ManualClock) -> Place:
    place = Place(1, clock)
    await place.made(TOKEN="abc", OTHER="x")
    await place.policy()
    return place


async def test_an_app_arrives_with_its_secrets_and_policies(clock: ManualClock, home: Place) -> None:
    there = Place(2, clock)
    record = await there.porter.carry(home.packed())
    made = home.store.get(APPS, SHOP)
    assert made is not None and (record.id, record.network_id, record.home) == (made.id, made.network_id, home.node)
    assert there.values() == {"TOKEN": "abc", "OTHER": "x"}
    assert there.policies.list(SHOP) == home.policies.list(SHOP)
    assert there.secrets.version(there.store, SHOP) == home.secrets.version(home.store, SHOP)


async def test_the_newest_releases_go_along_and_the_newest_that_came_to_its_end(
    clock: ManualClock, home: Place
) -> None:
    """So that a home that was lost is followed by one that goes on counting, and knows what is to run."""
    there, releases = Place(2, clock), ReleaseTable(home.store, clock)
    for _ in range(CARRIED_RELEASES + 3):
        await releases.add(SHOP, image="i", strategy="", description="", definition=b"{}", user="ann")
    await releases.move(SHOP, 2, "complete")
    await there.porter.carry(home.packed())
    carried = ReleaseTable(there.store, clock)
    newest = CARRIED_RELEASES + 3
    expected = [*range(newest, newest - CARRIED_RELEASES, -1), 2]
    assert [each.version for each in carried.list(SHOP)] == expected
    await there.porter.settle(SHOP, home.node, take=True)
    made = await carried.add(SHOP, image="j", strategy="", description="", definition=b"", user="bob")
    assert made.version == newest + 1


async def test_large_definitions_do_not_make_orders_large(clock: ManualClock, home: Place) -> None:
    there, releases = Place(2, clock), ReleaseTable(home.store, clock)
    for _ in range(3):
        await releases.add(SHOP, image="i", strategy="", description="", definition=bytes(100_000), user="ann")
    await there.porter.carry(home.packed())
    assert [each.version for each in ReleaseTable(there.store, clock).list(SHOP)] == [3]


async def test_nothing_of_a_secret_can_be_read_on_the_way(home: Place) -> None:
    assert b"abc" not in home.packed().luggage and b"TOKEN" not in home.packed().luggage


async def test_a_key_removed_at_home_is_removed_there(clock: ManualClock, home: Place) -> None:
    there = Place(2, clock)
    await there.porter.carry(home.packed())
    await home.secrets.delete(SHOP, "OTHER")
    await home.policies.delete(SHOP, home.policies.list(SHOP)[0].id)
    await there.porter.carry(home.packed())
    assert there.values() == {"TOKEN": "abc"} and there.policies.list(SHOP) == []


async def test_a_bundle_overtaken_on_its_way_changes_nothing(clock: ManualClock, home: Place) -> None:
    there, early = Place(2, clock), home.packed()
    clock.advance(1)
    await home.secrets.set(SHOP, {"TOKEN": "new"})
    await there.porter.carry(home.packed())
    await there.porter.carry(early)
    assert there.values()["TOKEN"] == "new"


async def test_a_home_whose_clock_was_wrong_is_heard_again(clock: ManualClock, home: Place) -> None:
    there = Place(2, clock)
    clock.advance(CROSSING_S * 100)
    await there.porter.carry(home.packed())
    clock.advance(-CROSSING_S * 100)
    await home.secrets.set(SHOP, {"TOKEN": "new"})
    await there.porter.carry(home.packed())
    assert there.values()["TOKEN"] == "new"


async def test_a_second_hand_bundle_is_as_old_as_it_is(clock: ManualClock, home: Place) -> None:
    middle, end = Place(2, clock), Place(3, clock)
    await middle.porter.carry(home.packed())
    clock.advance(CROSSING_S * 2)
    await home.secrets.set(SHOP, {"TOKEN": "new"})
    await end.porter.carry(home.packed())
    await end.porter.carry(middle.packed())
    assert end.values()["TOKEN"] == "new"
    fresh = Place(4, clock)
    assert (await fresh.porter.carry(middle.packed())).home == home.node
    assert fresh.values()["TOKEN"] == "abc"


async def test_a_bundle_that_comes_back_changes_nothing_at_home(clock: ManualClock, home: Place) -> None:
    there = Place(2, clock)
    await there.porter.carry(home.packed())
    await home.secrets.set(SHOP, {"TOKEN": "new"})
    record = await home.porter.carry(there.packed())
    assert record.home is None and home.values()["TOKEN"] == "new"


async def test_an_app_deleted_at_home_does_not_come_back_to_it(clock: ManualClock, home: Place) -> None:
    packed = home.packed()
    await home.apps.delete(SHOP)
    with pytest.raises(NotFound):
        await home.porter.carry(packed)


async def test_another_app_of_the_name_gives_way_only_if_it_has_nothing(clock: ManualClock, home: Place) -> None:
    other, there = Place(5, clock), Place(2, clock)
    await other.made(WHOSE="other")
    await there.porter.carry(other.packed())
    await there.porter.carry(home.packed())
    assert "WHOSE" not in there.values()
    await there.store.write(lambda tx: tx.put(BY_APP, f"{SHOP}/m", MachineKey(id=MachineId("m"))))
    with pytest.raises(Conflict):
        await there.porter.carry(other.packed())
    with pytest.raises(Conflict):
        await other.porter.carry(home.packed())


async def test_keys_of_a_cluster_are_changed_one_node_at_a_time(clock: ManualClock) -> None:
    behind, ahead = Place(1, clock, OLD), Place(2, clock, NEW, OLD)
    await behind.made(TOKEN="abc")
    await ahead.porter.carry(behind.packed())
    assert ahead.values() == {"TOKEN": "abc"}
    with pytest.raises(Unavailable):
        await Place(3, clock, OLD).porter.carry(ahead.packed())


@pytest.mark.parametrize("luggage", [b"", b"x" * 11, bytes(4096)])
async def test_a_bundle_nobody_sealed_is_refused(clock: ManualClock, home: Place, luggage: bytes) -> None:
    there = Place(2, clock)
    with pytest.raises(Unavailable):
        await there.porter.carry(msgspec.structs.replace(home.packed(), luggage=luggage))
    assert there.store.get(APPS, SHOP) is None
