"""A host whose daemon was killed and whose machines go on: it is not lost, until it is."""

from collections.abc import Iterator

import pytest

from tests.e2e.returning import Trio, logged, order_at, trio
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_join import WITHIN_S, states
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    with trio(tmp_path_factory.mktemp("trio")) as fleet:
        yield fleet


@pytest.mark.long(reason="waits for a host to be lost; test_agent_fleet.py and the simulator of fleets do, too")
async def test_a_spare_starts_for_a_lost_host_and_not_for_a_daemon_that_is_away(fleet: Trio) -> None:
    await fleet.together()
    first, second, third = fleet.hosts
    lost = third.node.node_id
    async with first.node.client() as one, second.node.client() as two:
        shop = await Shop(one, "stays").open()
        watched = await order_at(shop, 2)
        spare = await order_at(shop, 1, standbys=[watched.id], skip_launch=True)
        await fleet.together()

        async def state(wanted: str) -> bool:
            return [(await states(each)).get(lost) for each in (one, two)] == [wanted, wanted]

        async def spare_is(wanted: str) -> bool:
            return (await Shop(two, shop.app).get(spare.id)).state == wanted

        third.node.kill()
        await eventually(lambda: state("away"), WITHIN_S)
        await eventually(lambda: logged(second, "spare is not started", because="away"), WITHIN_S)
        assert await spare_is("stopped") or await spare_is("created")

        third.node.start()
        await fleet.together()
        assert not await spare_is("started")

        third.node.lose()
        await eventually(lambda: state("down"), WITHIN_S)
        await eventually(lambda: spare_is("started"), WITHIN_S)
    third.node.start()
    await fleet.together()
