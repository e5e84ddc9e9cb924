"""Who has what: the catalog's word, what passed a moment ago, and what nodes say."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hawker.errors import BadRequest, Unavailable
from hawker.gateway.fan_out import FanOut, Reach
from hawker.gateway.owners import MOST_REMEMBERED, REMEMBERED_S, Owners
from hawker.ids import AppName, NodeId
from tests.gateway.town import APP, FAR, HERE, Broker, Town, town_of
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time

MACHINE = "0" * 14
NOWHERE = NodeId("0000ffff")


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with town_of(tmp_path, HERE, FAR, FAR) as town:
        yield town


def owners(town: Town) -> Owners:
    clock = next(iter(town.hosts.values())).worker.parts.deps.clock
    return Owners(town, FanOut(Reach(town, town)), clock)


async def test_an_owner_seen_is_known_for_a_while_and_the_catalog_counts_more(town: Town) -> None:
    known, clock = owners(town), next(iter(town.hosts.values())).worker.parts.deps.clock
    known.remember("machine", MACHINE, NOWHERE)
    known.remember("app", APP, NOWHERE)
    assert known.known("machine", MACHINE) == NOWHERE
    assert (known.nodes_of_app(AppName(APP)), known.home_of_app(AppName(APP))) == ((NOWHERE,), NOWHERE)
    first = next(iter(town.hosts))
    town.moved[MACHINE] = first
    assert known.known("machine", MACHINE) == first
    town.moved.clear()
    await clock.sleep(REMEMBERED_S + 1)
    assert known.known("machine", MACHINE) is None and known.nodes_of_app(AppName(APP)) == ()


async def test_memory_is_bounded(town: Town) -> None:
    known = owners(town)
    for number in range(MOST_REMEMBERED + 10):
        known.remember("machine", f"{number:014x}", NOWHERE)
    assert known.known("machine", f"{0:014x}") is None
    assert known.known("machine", f"{MOST_REMEMBERED:014x}") == NOWHERE


async def test_a_place_that_is_behind_is_a_hint_where_to_ask(town: Town) -> None:
    known, there = owners(town), list(town.hosts)[1]
    assert await known.hint(None) is None and await known.hint(f"{there}:1:2") is None
    town.freeze()
    assert await known.hint(f"{there}:1:2") == there
    assert await known.hint(f"{NOWHERE}:1:2") is None, "nobody knows that node: it cannot be asked"
    town.frozen = None
    assert await known.hint(f"{there}:0:0") == there, "it could not say where it wrote"
    with pytest.raises(BadRequest):
        await known.hint("whatever; DROP TABLE nodes")


async def test_one_node_of_each_other_region_is_asked_first(town: Town) -> None:
    _, two, three = town.hosts
    assert owners(town)._abroad_first(town.hosts) == [two, next(iter(town.hosts)), three]
    town.hosts[two].down = True
    assert owners(town)._abroad_first(town.hosts)[0] == three


async def test_an_owner_says_so_and_is_remembered(town: Town) -> None:
    api = Broker(town, next(iter(town.hosts.values()))).api
    await api.app()
    machine = (await api.machine(region=FAR)).id
    known = owners(town)
    found = await known.ask("machine", machine, town.hosts, "ann")
    assert found is not None and found.app == APP
    assert town.hosts[NodeId(found.node)].region == FAR and known.known("machine", machine) == found.node


async def test_nobody_is_asked_for_what_is_no_id(town: Town) -> None:
    for host in town.hosts.values():
        host.cut = True
    assert await owners(town).ask("machine", "../x", town.hosts, "ann") is None
    with pytest.raises(Unavailable):
        await owners(town).ask("machine", MACHINE, town.hosts, "ann")
