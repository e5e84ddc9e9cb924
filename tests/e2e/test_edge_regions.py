"""Three real hosts in two regions: who asks where the app has no machine is answered from the other region, which wakes
one, and loses a host. So are datagrams."""

import asyncio
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from anyio.to_thread import run_sync

from hawker.api.contract.machine import Machine, WaitState
from hawker.chaos.fleet.real_fleet import LabFleet
from hawker.chaos.hostile.python_image import PYTHON, REFERENCE, write_python_image
from hawker.config import PUBLISH
from hawker.errors import BadRequest
from hawker.feed import EVERYWHERE
from tests.e2e.command_line import CommandLine
from tests.e2e.edge_hosts import edge_hosts
from tests.e2e.shop import Shop
from tests.e2e.test_edge_datagrams import SERVE
from tests.e2e.test_fleet_images import SMALL
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]
PORT, OTHER_PORT, UDP_PORT, WITHIN_S = 18_445, 18_446, 15_362, 120.0


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[LabFleet]:
    with edge_hosts(tmp_path, 3, regions=("ams", "iad", "iad")) as fleet:
        yield fleet


async def order(shop: Shop, number: int, port: int = PORT) -> Machine:
    service = {"internal_port": 8080, "ports": [{"port": port, "handlers": ["http"]}]}
    metadata = {"hawker_labels": f"host={number}", PUBLISH: EVERYWHERE}
    config = {"image": "hawker/hello", "services": [service], "metadata": metadata, **SMALL}
    return await shop.run_somewhere(config, BadRequest)


async def answer(address: str, port: int = PORT) -> str:
    """Empty where there is none."""
    try:
        reader, writer = await asyncio.open_connection(address, port)
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
        other = await order(shop, 1, OTHER_PORT)  # of another group, on a host that has one of the first
        assert other.id in await eventually(lambda: answer(here.host.address, OTHER_PORT), WITHIN_S)
        assert other.id not in await answer(here.host.address)

        async def wakes_one() -> bool:
            """A host that is too busy to say a word for a second is passed over, and may wake its own all the same."""
            for machine in machines:
                await shop.stop(machine.id)
                await shop.wait(machine.id, WaitState.STOPPED)
            await eventually(lambda: answer(here.host.address), WITHIN_S)
            states = [(await shop.get(machine.id)).state for machine in machines]
            return sorted(states) == ["started", "stopped"]

        await eventually(wakes_one, 2 * WITHIN_S)

        await run_sync(first.power_off)

        async def survivor() -> bool:
            return machines[1].id in await answer(here.host.address)

        await eventually(survivor, WITHIN_S)


def datagram_answered(address: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.settimeout(1)
        asker.connect((address, UDP_PORT))
        try:
            asker.send(b"?")
            return asker.recv(100) == b"got ?"
        except OSError:
            return False


async def test_datagrams_are_answered_from_another_region_which_wakes_a_machine(
    fleet: LabFleet, tmp_path: Path
) -> None:
    here, there, _ = fleet.stalls
    node = there.daemon
    write_python_image(tmp_path / "image")
    hawker = CommandLine(node.environment | {"HAWKER_URL": node.url, "HAWKER_TOKEN": node.token})
    hawker.say("images", "import", str(tmp_path / "image"), "--as", REFERENCE)
    config = {
        "image": REFERENCE,
        "init": {"exec": [PYTHON, "-c", SERVE]},
        "services": [{"protocol": "udp", "internal_port": 5353, "ports": [{"port": UDP_PORT}]}],
        "metadata": {"hawker_labels": "host=1", PUBLISH: EVERYWHERE},
        **SMALL,
    }
    async with node.client() as client:
        shop = await Shop(client, "names").open()
        machine = await shop.run_somewhere(config, BadRequest)
        answered = partial(run_sync, datagram_answered, here.host.address)
        await eventually(answered, WITHIN_S)
        explain = ("route", "explain", "-a", "names", f"udp://localhost:{UDP_PORT}", "-o", "json")
        assert machine.id in hawker.say(*explain)
        await shop.stop(machine.id)
        await shop.wait(machine.id, WaitState.STOPPED)
        await eventually(answered, WITHIN_S)
        await shop.wait(machine.id, WaitState.STARTED)  # the datagram has woken it
