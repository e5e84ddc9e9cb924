"""Three real hosts: an app at two of them, a hostname with a certificate at the edge of the third; a request wakes a
machine, and a host is lost under load without a request that fails."""

import asyncio
import ssl
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hawker.api.contract.machine import Machine, WaitState
from hawker.chaos.fleet.real_fleet import LabFleet
from hawker.clock import SystemClock
from hawker.config import PUBLISH
from hawker.errors import BadRequest
from hawker.feed import EVERYWHERE
from tests.certificates import issued, root_pem
from tests.e2e.command_line import CommandLine
from tests.e2e.edge_hosts import edge_hosts
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_images import SMALL
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.slow]
PORT, NAME, WITHIN_S = 18_444, "shop.example.com", 120.0
SLOWEST_S = 2.5
"""1.3 s of silence, a tenth until it is noticed, and a host that has little else to do."""
_BUSY = 3
"""So many times what the slowest took before the loss comes to that: all who waited ask again at once."""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[LabFleet]:
    with edge_hosts(tmp_path, 3) as fleet:
        yield fleet


@dataclass(slots=True)
class Load:
    """Clients that ask at a pace, over connections that are used again."""

    address: str
    context: ssl.SSLContext
    statuses: Counter[int] = field(default_factory=Counter)
    bodies: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    over: bool = False

    async def ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began = asyncio.get_running_loop().time()
        writer.write(f"GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        body = await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r\n")[0]))
        self.statuses[int(head[9:12])] += 1
        self.bodies[body.decode()] += 1
        self.slowest_s = max(self.slowest_s, asyncio.get_running_loop().time() - began)

    async def once(self) -> bool:
        """Whether it was answered with 200."""
        before = self.statuses[200]
        try:
            reader, writer = await asyncio.open_connection(
                self.address, PORT, ssl=self.context, server_hostname=NAME, ssl_handshake_timeout=20
            )
            await self.ask(reader, writer)
            writer.close()
        except (OSError, EOFError):
            return False
        return self.statuses[200] > before

    async def client(self, every_s: float, after_s: float) -> None:
        """An address has 64 handshakes under way, so clients do not begin all at once."""
        await SystemClock().sleep(after_s)
        reader, writer = await asyncio.open_connection(self.address, PORT, ssl=self.context, server_hostname=NAME)
        clock = SystemClock()
        while not self.over:
            began = clock.monotonic()
            await self.ask(reader, writer)
            await clock.sleep(max(0.0, began + every_s - clock.monotonic()))
        writer.close()


async def order(shop: Shop, number: int) -> Machine:
    service = {"internal_port": 8080, "ports": [{"port": PORT, "handlers": ["tls", "http"]}]}
    metadata = {"hawker_labels": f"host={number}", PUBLISH: EVERYWHERE}
    config = {"image": "hawker/hello", "services": [service], "metadata": metadata, **SMALL}
    return await shop.run_somewhere(config, BadRequest)


@pytest.mark.long(reason="a host is lost; test_edge_regions.py loses one, too: the short form")
@pytest.mark.parametrize(
    ("clients", "per_s", "seconds"),
    [
        (40, 100.0, 2.0),
        (100, 300.0, 20.0),
    ],
)
async def test_a_host_that_is_lost_under_load_costs_no_request(
    fleet: LabFleet, tmp_path: Path, clients: int, per_s: float, seconds: float
) -> None:
    edge, lost, _ = fleet.stalls
    for name, text in zip(("chain.pem", "key.pem", "root.pem"), (*issued(NAME), root_pem()), strict=True):
        (tmp_path / name).write_text(text)
    node = edge.daemon
    hawker = CommandLine(node.environment | {"HAWKER_URL": node.url, "HAWKER_TOKEN": node.token})
    async with node.client() as client:
        shop = await Shop(client, "shop").open()
        machines = [await order(shop, number) for number in (1, 2)]
        files = ("--chain", str(tmp_path / "chain.pem"), "--key", str(tmp_path / "key.pem"))
        hawker.say("certs", "import", "-a", "shop", NAME, *files)
        load = Load(edge.host.address, ssl.create_default_context(cafile=str(tmp_path / "root.pem")))
        await eventually(load.once, WITHIN_S)

        states: list[str] = []

        async def wakes_one() -> bool:
            """A host that is too busy to say a word for a second is passed over, and may wake its own all the same."""
            for machine in machines:
                await shop.stop(machine.id)
                await shop.wait(machine.id, WaitState.STOPPED)
            await eventually(load.once, WITHIN_S)
            states[:] = [(await shop.get(machine.id)).state for machine in machines]
            return sorted(states) == ["started", "stopped"]

        await eventually(wakes_one, 3 * WITHIN_S)
        for machine, state in zip(machines, states, strict=True):
            if state == "stopped":
                await shop.start(machine.id)

        async def both() -> bool:
            load.bodies.clear()
            for _ in range(8):
                await load.once()
            return len(load.bodies) == 2

        await eventually(both, WITHIN_S)
        load.statuses.clear()
        load.slowest_s = 0.0
        async with asyncio.TaskGroup() as tasks:
            for number in range(clients):
                tasks.create_task(load.client(clients / per_s, number * seconds / clients / 4))
            await SystemClock().sleep(seconds / 2)
            load.slowest_s = 0.0  # all have begun
            await SystemClock().sleep(seconds / 2)
            before_s, load.slowest_s = load.slowest_s, 0.0
            lost.host.run("ip", "link", "set", "up0", "down")
            await SystemClock().sleep(2.0 + seconds)
            load.over = True
        print(f"{load.statuses}, the slowest after {load.slowest_s:.2f} s, before the loss after {before_s:.2f} s")
        assert set(load.statuses) == {200} and load.slowest_s < SLOWEST_S + _BUSY * before_s
        lost.power_off()
