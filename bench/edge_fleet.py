"""What the edges of several hosts do together. One machine, at the last host: how soon it gets requests at every edge
once it is started; how long a request at another host waits that wakes it, beside its start by a call, in turns. Then
an app with a machine at each host, and clients at the first host's edge: every edge process is replaced, every daemon
is killed and restarted, and the app is deployed, one after the other; no request is to fail.

Hosts are network namespaces, machines containers of them; the clients are a process of their own, on kept connections.
For root: `PYTHONPATH=. python bench/edge_fleet.py [--hosts N] [--rounds N] [--rate R]`.
"""

import argparse
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import msgspec
from anyio.to_thread import run_sync
from edge_lost import ANSWER_S, Asked, begin_clients
from figures import Samples, table

from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.machine import (
    CREATE_MACHINE,
    GET_MACHINE,
    CreateMachineRequest,
    MachineParams,
    WaitState,
)
from hawker.api.contract.machine_operation import START_MACHINE, STOP_MACHINE, WAIT_MACHINE, WaitQuery
from hawker.chaos.deploys.deployed_app import IMAGE, DeployedApp, app_of, definition, edge_fleet
from hawker.clock import Clock, SystemClock
from hawker.config import PUBLISH
from hawker.feed import EVERYWHERE

REGIONS = ("mad",)
ALONE = "alone"
"""The app of one machine."""
WAKING_PORT, RESTING_PORT = 18_501, 18_502
"""Of the same service: requests to the first one start the machine."""
REST_S = 1.0
"""Before each time that is taken."""
LOOK_S = 0.01
EACH_S = 3.0
"""From the end of one thing that is done under load to the next one."""


FAILED = 500
"""From this status on it is the edge that answers: the image says 404 where there is nothing."""


class Alone:
    """The app of one machine, and its requests."""

    def __init__(self, app: DeployedApp) -> None:
        self._app = app
        self._edges = [stall.host.address for stall in app.fleet.stalls]
        self._machine = MachineParams(app_name=ALONE, machine_id="")

    async def stock(self) -> None:
        await self._app.patiently(self._app.everybody_is_here)
        await self._app.call(CREATE_APP, body=CreateAppRequest(name=ALONE))
        services = [
            {
                "internal_port": 8080,
                "protocol": "tcp",
                "autostart": wakes,
                "ports": [{"port": port, "handlers": ["http"]}],
            }
            for port, wakes in ((WAKING_PORT, True), (RESTING_PORT, False))
        ]
        metadata = {PUBLISH: EVERYWHERE, "hawker_labels": f"host={self._app.fleet.stalls[-1].host.number}"}
        config = {"image": IMAGE, "services": services, "metadata": metadata, "guest": {"memory_mb": 64}}
        body = msgspec.convert({"config": config, "region": REGIONS[0]}, CreateMachineRequest)
        order = partial(
            self._app.call, CREATE_MACHINE, params=AppParams(app_name=ALONE), body=body, idempotency_key=ALONE
        )
        made = await self._app.patiently(order)
        self._machine = MachineParams(app_name=ALONE, machine_id=made.id)
        await self._app.patiently(partial(self._comes_to, WaitState.STARTED))

    async def sleep(self) -> None:
        await self._app.call(STOP_MACHINE, params=self._machine)
        await self._app.patiently(partial(self._comes_to, WaitState.STOPPED))
        await self._app.clock.sleep(REST_S)

    async def start(self) -> None:
        await self._app.call(START_MACHINE, params=self._machine)
        await self._app.patiently(partial(self._comes_to, WaitState.STARTED))

    async def wake(self) -> None:
        """By a request to the first host, which does not have it."""
        while not await answers(self._edges[0], WAKING_PORT):
            raise RuntimeError("the machine did not wake")

    async def found(self) -> list[float]:
        """Milliseconds from `started` to the first answer, at each edge."""
        at: dict[str, float] = {}

        async def look(edge: str) -> None:
            while not await answers(edge, RESTING_PORT):
                await self._app.clock.sleep(LOOK_S)
            at[edge] = time.time() * 1000

        async with anyio.create_task_group() as tasks:
            for edge in self._edges:
                tasks.start_soon(look, edge)
            await self.start()
        machine = await self._app.call(GET_MACHINE, params=self._machine)
        started = next(each.timestamp for each in machine.events if each.type == "start" and each.status == "started")
        return [each - started for each in at.values()]

    async def _comes_to(self, state: WaitState) -> bool:
        await self._app.call(
            WAIT_MACHINE, params=self._machine, query=WaitQuery(state=(state,), timeout=60), timeout_s=65.0
        )
        return True


async def answers(edge: str, port: int) -> bool:
    with suppress(OSError, anyio.EndOfStream, anyio.BrokenResourceError):
        async with await anyio.connect_tcp(edge, port) as stream:
            await stream.send(f"GET / HTTP/1.1\r\nHost: {edge}\r\nConnection: close\r\n\r\n".encode())
            return (await stream.receive()).startswith(b"HTTP/1.1 200 ")
    return False


async def timed(act: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await act()
    return (time.perf_counter() - began) * 1000


async def machine_alone(app: DeployedApp, rounds: int) -> None:
    alone = Alone(app)
    await alone.stock()
    found, calls, wakes = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        await alone.sleep()
        found += await alone.found()
        await alone.sleep()
        calls.append(await timed(alone.start))
        await alone.sleep()
        wakes.append(await timed(alone.wake))
    own = Samples("start by a call", calls)
    edges = Samples(f"from started to an answer, {len(app.fleet.stalls)} edges", found)
    print(table([own, Samples("request at another host that wakes", wakes), edges], own))


# Under load.


async def replace_edges(app: DeployedApp, _: Path) -> None:
    """As after an upgrade: each warden begins anew, and so do its processes."""
    for stall in app.fleet.stalls:
        os.kill(int((stall.daemon.place.edge / "lock").read_text()), signal.SIGHUP)
        await app.clock.sleep(EACH_S)


async def restart_daemons(app: DeployedApp, _: Path) -> None:
    for stall in app.fleet.stalls:
        await app.again(stall)


async def deploy(app: DeployedApp, directory: Path) -> None:
    client = app.begin_client(definition(1), "rolling", "1", directory)
    said, errors = await run_sync(client.communicate)
    if client.returncode:
        raise RuntimeError(f"the deploy ended with status {client.returncode}: {(said + errors).decode()[-500:]}")


async def app_under_load(app: DeployedApp, directory: Path, rate: int) -> None:
    await app.stock()
    print("| Under load | took s | requests | failed | slowest ms |\n|---|---:|---:|---:|---:|")
    for what in (replace_edges, restart_daemons, deploy):
        file = directory / f"asked-{what.__name__}"
        # The clients ask until they are told to stop.
        clients = begin_clients(app.fleet.stalls[0].host.address, str(rate), "600", str(file))
        try:
            await app.clock.sleep(EACH_S)
            took = await timed(partial(what, app, directory))
            await app.clock.sleep(EACH_S)
            clients.terminate()
            await run_sync(partial(clients.wait, timeout=2 * ANSWER_S))
        finally:
            clients.kill()
        asked = msgspec.json.decode(file.read_bytes(), type=list[Asked])
        failed = sum(not each.status or each.status >= FAILED for each in asked)
        slowest = max(each.took_s for each in asked) * 1000
        print(f"| {what.__name__.replace('_', ' ')} | {took / 1000:.1f} | {len(asked)} | {failed} | {slowest:.0f} |")


async def measure(hosts: int, rounds: int, rate: int, clock: Clock) -> None:
    with TemporaryDirectory(prefix="hawker-bench-") as made:
        directory = Path(made)
        with edge_fleet(directory, clock, hosts, REGIONS) as fleet:
            async with app_of(fleet, clock, REGIONS) as app:
                await machine_alone(app, rounds)
                await app_under_load(app, directory, rate)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--rate", type=int, default=1000)
    given = parser.parse_args()
    anyio.run(measure, given.hosts, given.rounds, given.rate, SystemClock())


if __name__ == "__main__":
    main()
