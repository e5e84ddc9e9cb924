"""Two hosts with networks of their own: machines of one private network reach each other by name through the tunnel,
others do not, and nothing of it is readable between the hosts.
"""

import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from hawker.api.contract.app import ASSIGN_IP, AppParams, AssignIpRequest
from hawker.api.contract.machine import Machine, WaitState
from hawker.chaos.fleet.network_lab import NetworkLab
from hawker.chaos.fleet.real_fleet import LabFleet
from hawker.chaos.hostile.python_image import PYTHON, REFERENCE, write_python_image
from hawker.clock import SystemClock
from hawker.errors import BadRequest
from hawker.host.address import mesh_name
from hawker.host.mesh.program import ProgramDevice
from tests.e2e.command_line import CommandLine
from tests.e2e.shop import Shop
from tests.e2e.test_dns import FIND
from tests.e2e.test_fleet_images import SMALL
from tests.e2e.test_fleet_join import WITHIN_S
from tests.waiting import eventually

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.long(
        reason="tests/host/mesh/test_packets.py sends the packets, tests/fleet/test_mesh.py finds the ways"
    ),
    pytest.mark.skipif(shutil.which("wireguard-go") is None, reason="wireguard-go is missing"),
]

CANARY = "a-canary-in-the-mine-shaft"
LARGE = 3_000_000
SERVE = f"""
import socket
listening = socket.create_server(("::", 8080), family=socket.AF_INET6)
while True:
    connection, _ = listening.accept()
    with connection:
        asked = connection.recv(100)
        connection.sendall(b"{CANARY} " * {LARGE // (len(CANARY) + 1)} if asked == b"large" else b"{CANARY}")
"""
ASK = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], 8080), timeout=float(sys.argv[2])) as connection:
        connection.sendall(sys.argv[3].encode())
        count = 0
        while more := connection.recv(65536):
            count += len(more)
    print(count)
except OSError as error:
    print("none", error)
"""
MOST_S, QUIET_S = "20", "1"


@dataclass(frozen=True, slots=True)
class Line:
    """What is between two hosts."""

    lab: NetworkLab
    fleet: LabFleet

    @contextmanager
    def heard(self, file: Path) -> Iterator[None]:
        """All bytes of it, in a file."""
        listening = subprocess.Popen(
            (
                "tcpdump",
                "--interface",
                self.lab.hosts[0].link,
                "--immediate-mode",
                "-B",
                "32768",
                "-U",
                "-w",
                str(file),
            ),
            stderr=subprocess.PIPE,
            text=True,
        )
        assert listening.stderr is not None and "listening" in listening.stderr.readline()
        try:
            yield
        finally:
            listening.terminate()
            listening.wait()
            listening.stderr.close()


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    place = tmp_path_factory.mktemp("mesh")
    for name in ("street", "nodes"):
        (place / name).mkdir()
    with NetworkLab(place / "street", 2) as lab:
        fleet = LabFleet(lab, place / "nodes", SystemClock(), driver="container")
        for number, stall in enumerate(fleet.stalls):
            stall.daemon.flags = (*stall.daemon.flags, "--label", f"host={number}")
        with fleet:
            write_python_image(place / "python.tar")
            node = fleet.stalls[0].daemon
            hawker = CommandLine(node.environment | {"HAWKER_URL": node.url, "HAWKER_TOKEN": node.token})
            hawker.say("images", "import", str(place / "python.tar"), "--as", REFERENCE)
            yield Line(lab, fleet)
    assert fleet.left == []


@pytest.fixture
async def shop(line: Line) -> AsyncIterator[Shop]:
    async with line.fleet.stalls[0].daemon.client() as client:
        shop = await Shop(client, "web").open()
        yield shop
        await shop.close()


async def at_host(shop: Shop, number: int) -> Machine:
    config = {
        "image": REFERENCE,
        "metadata": {"hawker_labels": f"host={number}"},
        "init": {"exec": [PYTHON, "-c", SERVE]},
        "services": [{"protocol": "tcp", "internal_port": 8080, "ports": [{"port": 8080}]}],
        **SMALL,
    }
    return await shop.run_somewhere(config, BadRequest)


async def asked(shop: Shop, machine: Machine, host: str, what: str = "small", within_s: str = MOST_S) -> str:
    answer = await shop.exec(machine.id, PYTHON, "-c", ASK, host, within_s, what)
    return answer.stdout.strip()


async def reached(shop: Shop, machine: Machine, host: str) -> None:
    async def once() -> bool:
        return await asked(shop, machine, host) == str(len(CANARY))

    await eventually(once, WITHIN_S)


async def test_machines_of_two_hosts_reach_each_other_by_name_and_unread(
    line: Line, shop: Shop, tmp_path: Path
) -> None:
    here, there = await at_host(shop, 0), await at_host(shop, 1)
    with line.heard(tmp_path / "heard"):
        await reached(shop, here, f"{there.id}.vm.web.internal")
        await reached(shop, there, f"{here.id}.vm.web.internal")
        large = LARGE // (len(CANARY) + 1) * (len(CANARY) + 1)
        assert await asked(shop, here, str(there.private_ip), "large") == str(large)
    heard = (tmp_path / "heard").read_bytes()
    assert len(heard) > LARGE // 10 and CANARY.encode() not in heard

    found = await shop.exec(here.id, PYTHON, "-c", FIND, "web.internal")
    assert set(found.stdout.strip().split(",")) == {here.private_ip, there.private_ip}

    other = await Shop(shop.client, "apart").open("apart")
    stranger = await at_host(other, 1)
    assert (await asked(other, stranger, str(here.private_ip), within_s=QUIET_S)).startswith("none")
    assert (await asked(shop, here, str(stranger.private_ip), within_s=QUIET_S)).startswith("none")

    # An app's private address leads to its machines, by the edge of the asker's host, in its network alone.
    given = await shop.client.call(
        ASSIGN_IP, params=AppParams(app_name=shop.app), body=AssignIpRequest(type="private_v6")
    )
    for machine in (here, there):
        await reached(shop, machine, "web.flycast")
    assert (await asked(other, stranger, given.ip, within_s=QUIET_S)).startswith("none")
    assert (await asked(other, stranger, "web.flycast", within_s=QUIET_S)).startswith("none")
    await shop.stop(here.id)
    await reached(shop, there, "web.flycast")
    await shop.wait(here.id, WaitState.STOPPED)
    await shop.start(here.id)
    await reached(shop, there, str(here.private_ip))
    await other.close()

    # The tunnel goes on without the daemon, and is made anew without its process.
    first = line.fleet.stalls[0]
    first.crash()
    async with line.fleet.stalls[1].daemon.client() as client:
        assert await asked(Shop(client, "web"), there, str(here.private_ip)) == str(len(CANARY))
    first.restart()
    first.host.run("ip", "link", "delete", mesh_name(first.id))
    async with first.daemon.client() as client:
        await reached(Shop(client, "web"), here, str(there.private_ip))

        # Another key is taken while both are up, and by the other host, too.
        rekey = ("node", "mesh", "rekey", "--data-dir", str(first.daemon.data_dir), "-o", "json")
        key = json.loads(CommandLine(first.daemon.environment).say(*rekey))["key"]
        device = ProgramDevice(mesh_name(line.fleet.stalls[1].id))

        async def taken() -> bool:
            return list(device.read().peers) == [key]

        await eventually(taken, WITHIN_S)
        await reached(Shop(client, "web"), here, str(there.private_ip))
