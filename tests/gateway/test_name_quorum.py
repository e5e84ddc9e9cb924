"""Who keeps a name, and what becomes of one that nobody made an app of."""

from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hawker.errors import NameTaken, Unavailable
from hawker.gateway.claims import ABANDONED_S, KEEPERS, NameQuorum, keepers
from hawker.gateway.fan_out import FanOut, Reach
from hawker.ids import AppName, NodeId
from hawker.record.app import NAMES
from tests.gateway.town import FAR, HERE, Broker, Town, town_of
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

NODES = [NodeId(f"{number:08x}") for number in range(20)]
NAME = AppName("shop")


@given(st.text(min_size=1), st.permutations(NODES), st.integers(1, len(NODES)))
def test_every_broker_comes_to_the_same_keepers(name: str, nodes: list[NodeId], count: int) -> None:
    some = sorted(nodes[:count])
    assert keepers(name, some) == keepers(name, reversed(some))
    assert len(keepers(name, some)) == min(KEEPERS, count)


@given(st.text(min_size=1), st.sampled_from(NODES))
def test_a_node_that_goes_changes_one_keeper_at_most(name: str, gone: NodeId) -> None:
    before = keepers(name, NODES)
    after = keepers(name, [node for node in NODES if node != gone])
    assert len(set(before) & set(after)) >= KEEPERS - 1 and (gone in before or before == after)


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with town_of(tmp_path, HERE, HERE, FAR) as town:
        yield town


def names(town: Town) -> NameQuorum:
    return NameQuorum(town, FanOut(Reach(town, town)))


async def test_a_name_is_kept_for_one_claim_until_it_is_released(town: Town) -> None:
    home = next(iter(town.hosts))
    kept = await names(town).keep(NAME, "one", home, "ann")
    await names(town).keep(NAME, "one", home, "ann")
    with pytest.raises(NameTaken):
        await names(town).keep(NAME, "two", home, "bob")
    await names(town).release(replace(kept, claim="other"), "bob")
    with pytest.raises(NameTaken):
        await names(town).keep(NAME, "two", home, "bob")
    await names(town).release(kept, "ann")
    await names(town).keep(NAME, "two", home, "bob")


async def test_a_key_at_a_second_broker_has_the_home_of_the_first(town: Town) -> None:
    """Whichever keeper was away for the first one, and whether it is back for the second one."""
    first, second, _ = town.hosts
    for number, (away, back) in enumerate(product(town.hosts.values(), (False, True))):
        name = AppName(f"shop-{number}")
        away.cut = True
        assert (await names(town).keep(name, "k", first, "ann", shared=True)).home == first
        away.cut = not back
        kept = await names(town).keep(name, "k", second, "ann", shared=True)
        away.cut = False
        assert kept.home == first
        await names(town).release(kept, "ann")
        held = [record for host in town.hosts.values() if (record := host.worker.store.get(NAMES, name)) is not None]
        assert len(held) >= 2 and {record.home for record in held} == {first}


async def test_a_key_whose_home_was_forgotten_gets_another_one(town: Town) -> None:
    first, _, far = town.hosts
    await names(town).keep(NAME, "k", far, "ann", shared=True)
    del town.hosts[far]
    assert (await names(town).keep(NAME, "k", first, "ann", shared=True)).home == first


async def test_a_name_that_no_app_was_made_of_is_free_after_a_while(town: Town) -> None:
    home, *_ = town.hosts
    await names(town).keep(NAME, "one", home, "ann")
    await town.hosts[home].worker.parts.deps.clock.sleep(ABANDONED_S)
    await names(town).keep(NAME, "two", home, "bob")


async def test_a_name_that_an_app_was_made_of_is_not_free_though_no_catalog_says_so(town: Town) -> None:
    town.freeze()
    first, second, _ = town.hosts.values()
    await Broker(town, second).api.app(NAME)
    await first.worker.parts.deps.clock.sleep(ABANDONED_S * 10)
    with pytest.raises(NameTaken):
        await names(town).keep(NAME, "two", first.id, "bob")


async def test_a_name_that_is_kept_for_a_node_that_is_away_stays_kept(town: Town) -> None:
    first, _, far = town.hosts.values()
    await names(town).keep(NAME, "one", far.id, "ann")
    await first.worker.parts.deps.clock.sleep(ABANDONED_S)
    far.cut = True
    with pytest.raises(NameTaken):
        await names(town).keep(NAME, "two", first.id, "bob")
    del town.hosts[far.id]  # forgotten
    await names(town).keep(NAME, "two", first.id, "bob")


async def test_too_few_keepers_keep_nothing(town: Town) -> None:
    first, second, far = town.hosts.values()
    second.cut = far.cut = True
    with pytest.raises(Unavailable, match="too few"):
        await names(town).keep(NAME, "one", first.id, "ann")
    assert first.worker.store.get(NAMES, NAME) is None
