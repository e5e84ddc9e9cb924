"""Three real hosts in two regions: who asks where the app has no machine is answered from the other region, which wakes
one, and loses a host."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from hawker.api.contract.machine import Machine, WaitState
from hawker.chaos.fleet.real_fleet import LabFleet
from hawker.errors import BadRequest
from hawker.feed import EVERYWHERE, PUBLISH
from tests.e2e.edge_hosts import edge_hosts
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_images import SMALL
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]
PORT, WITHIN_S = 18_445, 120.0


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[LabFleet]:
    with edge_hosts(tmp_path, 84, 3, regions=("ams", "iad", "iad")) as fleet:
        yield fleet


async def order(shop: Shop, number: int) -> Machine:
    service = {"internal_port": 8080, "ports": [{"port": PORT, "handlers": ["http"]}]}
    metadata = {"hawker_labels": f"host={number}", PUBLISH: EVERYWHERE}
    config = {"image": "hawker/hello", "services": [service], "metadata": metadata, **SMALL}
    return await shop.run_somewhere(config, BadRequest)


async def answer(address: str) -> str:
    """Empty where there is none."""
    try:
        reader, writer = await asyncio.open_connection(address, PORT)
        writer.write(b"GET / HTTP/1.1\r\nHost: shop.localhost\r\nConnection: close\r\n\r\n")
        said = (await reader.read()).decode()
        writer.close()
    except OSError:
        return ""
    return said if said.startswith("HTTP/1.1 200") else ""


async def test_a_request_is_answered_from_another_region_which_wakes_a_machine_and_loses_a_host(
    fleet: LabFleet,
) -> None:
    here, first, second = fleet.stalls
    async with second.daemon.client() as client:
        shop = await Shop(client, "shop").open()
        machines = [await order(shop, number) for number in (1, 2)]
        await eventually(lambda: answer(here.host.address), WITHIN_S)

        for machine in machines:
            await shop.stop(machine.id)
            await shop.wait(machine.id, WaitState.STOPPED)
        await eventually(lambda: answer(here.host.address), WITHIN_S)
        states = [(await shop.get(machine.id)).state for machine in machines]
        assert sorted(states) == ["started", "stopped"], "the request has woken one of them"

        first.host.power_off()

        async def survivor() -> bool:
            return machines[1].id in await answer(here.host.address)

        await eventually(survivor, WITHIN_S)
