"""How soon a certificate that is ordered from an authority is shown by the edges of a fleet: from the order to the
first edge that shows it, and from there to the last one. Pebble is the authority. Hosts are network namespaces, each
with an edge; each round orders for a name of its own, which leads to the first host.

For root; needs Go, which builds Pebble: `PYTHONPATH=. python bench/edge_certificate.py [--hosts N] [--rounds N]`.
"""

import argparse
import os
import socket
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from anyio.to_thread import run_sync
from edge_tls import careless
from figures import Samples, table

from hawker.api.client import Client
from hawker.api.contract.app import CREATE_APP, AppParams, CreateAppRequest
from hawker.api.contract.certificate import ORDER_CERTIFICATE, OrderCertificateRequest
from hawker.api.contract.machine import CREATE_MACHINE, CreateMachineRequest, MachineParams, WaitState
from hawker.api.contract.machine_operation import WAIT_MACHINE, WaitQuery
from hawker.chaos.fleet.network_lab import NetworkLab
from hawker.chaos.fleet.real_fleet import LabFleet
from hawker.clock import SystemClock
from hawker.config import PUBLISH
from hawker.feed import EVERYWHERE
from hawker.log import Secret
from tests.e2e.test_walkthrough import Laptop
from tests.edge.test_acme import SOURCE

APP, TLS_PORT = "site", 443
HERE = AppParams(app_name=APP)
DIRECTORY = "https://acme.example.org:14000/dir"
WITHIN_S, LOOK_S, REST_S = 120.0, 0.02, 2.0


def shows(address: str, name: str) -> bool:
    try:
        with (
            socket.create_connection((address, TLS_PORT), timeout=5) as made,
            careless().wrap_socket(made, server_hostname=name) as secured,
        ):
            return name.encode() in (secured.getpeercert(binary_form=True) or b"")
    except OSError:
        return False


def shown(address: str, name: str, times: dict[str, float]) -> None:
    while not shows(address, name):
        time.sleep(LOOK_S)
    times[address] = time.perf_counter()


async def taken(fleet: LabFleet, rounds: int, names: Path) -> tuple[list[float], list[float]]:
    """Milliseconds to the first edge, and from there to the last one."""
    first, later = list[float](), list[float]()
    stall = fleet.stalls[0]
    async with Client(stall.url, Secret(stall.daemon.token)) as client:
        await client.call(CREATE_APP, body=CreateAppRequest(app_name=APP, org_slug="personal"))
        service = {"internal_port": 8080, "ports": [{"port": 80, "handlers": ["http"]}]}
        service["ports"].append({"port": TLS_PORT, "handlers": ["tls", "http"]})
        config = {"image": "hawker/hello", "services": [service], "metadata": {PUBLISH: EVERYWHERE}}
        made = await client.call(CREATE_MACHINE, params=HERE, body=CreateMachineRequest(config=config))
        query = WaitQuery(state=(WaitState.STARTED,), timeout=60)
        params = MachineParams(app_name=APP, machine_id=made.id)
        await client.call(WAIT_MACHINE, params=params, query=query, timeout_s=65.0)
        for number in range(rounds):
            name = f"site-{number}.example.com"
            with names.open("a") as file:
                file.write(f"{stall.host.address} {name}\n")
            await anyio.sleep(REST_S)
            began, times = time.perf_counter(), dict[str, float]()
            await client.call(ORDER_CERTIFICATE, params=HERE, body=OrderCertificateRequest(hostname=name))
            with anyio.fail_after(WITHIN_S):
                async with anyio.create_task_group() as tasks:
                    for each in fleet.stalls:
                        tasks.start_soon(run_sync, shown, each.host.address, name, times)
            first.append((min(times.values()) - began) * 1000)
            later.append((max(times.values()) - min(times.values())) * 1000)
    return first, later


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    with TemporaryDirectory(prefix="bench") as made:
        place = Path(made)
        for name in ("street", "nodes", "laptop", "bin"):
            (place / name).mkdir()
        environment = {**os.environ, "GOBIN": str(place / "bin"), "GOFLAGS": "-mod=mod"}
        subprocess.run(("go", "install", SOURCE), env=environment, check=True, capture_output=True)
        with NetworkLab(place / "street", given.hosts) as lab:
            laptop = Laptop(lab, place / "laptop")
            flags = ("--acme-directory", DIRECTORY, "--acme-ca-file", str(laptop.root))
            fleet = LabFleet(lab, place / "nodes", SystemClock(), *flags, driver="container")
            for stall in fleet.stalls:
                stall.daemon.flags = (*stall.daemon.flags, "--edge-address", stall.host.address)
            with laptop.authority(place / "bin" / "pebble"), fleet:
                first, later = anyio.run(taken, fleet, given.rounds, place / "laptop" / "names")
    rows = [Samples("from the order to the first edge", first), Samples("from there to the last edge", later)]
    print(table(rows, rows[0]))


if __name__ == "__main__":
    main()
