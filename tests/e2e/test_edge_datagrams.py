"""Datagrams of clients on a real node: at a published port, at an address of the app's own, and from a machine of its
network; by a program that binds `fly-global-services`. Without the daemon, too, and a machine that sleeps is woken.
"""

import json
import os
import signal
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from anyio.to_thread import run_sync

from hawker.api.contract.machine import WaitState
from hawker.chaos.hostile.python_image import PYTHON, REFERENCE
from hawker.config import PUBLISH
from hawker.feed import EVERYWHERE
from tests.e2e.command_line import CommandLine
from tests.e2e.running_node import RunningNode, running_node
from tests.e2e.shop import Shop
from tests.e2e.test_edge_processes import APPS, processes_of
from tests.e2e.test_fleet_images import SMALL
from tests.e2e.test_fleet_join import HOSTS, WITHIN_S
from tests.e2e.two_hosts import two_hosts
from tests.ports import free_port
from tests.waiting import eventually, wait_for

pytestmark = [pytest.mark.root, pytest.mark.slow]
FAR_PORT = 15_353
SERVE = """
import socket
place = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
place.bind(("fly-global-services", 5353))
while True:
    data, client = place.recvfrom(65535)
    place.sendto(b"got " + data, client)
"""
ASK = """
import socket, sys
asker = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
asker.settimeout(1)
asker.connect((sys.argv[1], int(sys.argv[2])))
for _ in range(int(sys.argv[3])):
    try:
        asker.send(b"within")
        print(asker.recv(100).decode())
        break
    except OSError:
        continue
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    pool = ("--public-ipv4", "127.8.0.0/28")
    with running_node(tmp_path / "node", "--ephemeral", "--edge-address", "127.0.0.1", *pool) as node:
        yield node


def answers(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.settimeout(1)
        asker.connect((address, port))
        try:
            asker.send(b"hello")
            return asker.recv(100) == b"got hello"
        except OSError:
            return False


@pytest.mark.long(reason="a node and three machines of its own; the hop to another host, below, is the short form")
def test_datagrams_reach_a_machine_wherever_its_app_is(node: RunningNode, python_image: Path) -> None:
    hawker = CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})
    port = free_port()
    hawker.say("images", "import", str(python_image), "--as", REFERENCE)
    hawker.say("apps", "create", "names")
    told = hawker.say(
        "run", REFERENCE, "-a", "names", "--name", "one", "-p", f"{port}:5353/udp", "--", PYTHON, "-c", SERVE
    )
    assert f"127.0.0.1:{port}/udp -> 5353" in told
    wait_for(lambda: answers("127.0.0.1", port))
    explained = hawker.say("route", "explain", "-a", "names", f"udp://127.0.0.1:{port}", "-o", "json")
    assert json.loads(explained)["listeners"][0]["speaks"] == "udp"

    own = hawker.say("ips", "allocate", "-a", "names", "v4").strip()
    wait_for(lambda: answers(own, port))
    private = hawker.say("ips", "allocate", "-a", "names", "private_v6").strip()
    hawker.say("apps", "create", "apart", "--network", "apart")
    rest = ("--", PYTHON, "-c", "import time; time.sleep(100000)")
    hawker.say("run", REFERENCE, "-a", "names", "--name", "asker", *rest)
    hawker.say("run", REFERENCE, "-a", "apart", "--name", "stranger", *rest)
    ask = (PYTHON, "-c", ASK, private, str(port))
    assert hawker.say("exec", "--no-stdin", "asker", *ask, "30").strip() == "got within"
    assert hawker.say("exec", "--no-stdin", "stranger", *ask, "3").strip() == ""

    node.kill()
    wait_for(lambda: answers("127.0.0.1", port) and answers(own, port))  # without the daemon
    node.start()
    hawker.say("machine", "stop", "one")
    wait_for(lambda: answers("127.0.0.1", port))
    assert json.loads(hawker.say("machine", "status", "one", "-o", "json"))["machine"]["state"] == "started"


@pytest.mark.long(
    reason="a node of its own; test_edge_processes.py kills either process under streams, the test above has datagrams"
)
def test_datagrams_of_apps_of_both_processes_are_answered_whichever_is_killed(
    tmp_path: Path, python_image: Path
) -> None:
    with running_node(tmp_path / "node", "--ephemeral", "--edge-address", "127.0.0.1", "--edge-processes", "2") as node:
        hawker = CommandLine(node.environment | {"HAWKER_DATA_DIR": str(node.data_dir)})
        hawker.say("images", "import", str(python_image), "--as", REFERENCE)
        ports = [free_port() for _ in APPS]
        for app, port in zip(APPS, ports, strict=True):
            hawker.say("apps", "create", app)
            hawker.say("run", REFERENCE, "-a", app, "-p", f"{port}:5353/udp", "--", PYTHON, "-c", SERVE)
        wait_for(lambda: len(processes_of(node)) == 2)
        for port in ports:
            wait_for(partial(answers, "127.0.0.1", port))
        for process in processes_of(node):
            os.kill(process, signal.SIGKILL)
            for port in ports:
                wait_for(partial(answers, "127.0.0.1", port))
            wait_for(lambda: len(processes_of(node)) == 2)


@pytest.mark.anyio
async def test_datagrams_at_one_host_reach_and_wake_a_machine_of_another(tmp_path: Path, python_image: Path) -> None:
    with two_hosts(tmp_path, [("--edge-address", address) for address in HOSTS[:2]]) as (here, there):
        for host in (here, there):
            hawker = CommandLine(host.node.environment | {"HAWKER_DATA_DIR": str(host.node.data_dir)})
            hawker.say("images", "import", str(python_image), "--as", REFERENCE)
        async with here.node.client() as client:
            shop = Shop(client, "names")
            await shop.open()
            machine = await shop.run_somewhere(
                {
                    "image": REFERENCE,
                    "init": {"exec": [PYTHON, "-c", SERVE]},
                    "services": [{"protocol": "udp", "internal_port": 5353, "ports": [{"port": FAR_PORT}]}],
                    "metadata": {"hawker_labels": "host=1", PUBLISH: EVERYWHERE},
                    **SMALL,
                }
            )
            await eventually(lambda: run_sync(answers, here.address, FAR_PORT), WITHIN_S)
            await eventually(lambda: run_sync(answers, there.address, FAR_PORT), WITHIN_S)  # at its own host, too
            await shop.stop(machine.id)
            await shop.wait(machine.id, WaitState.STOPPED)
            await eventually(lambda: run_sync(answers, here.address, FAR_PORT), WITHIN_S)
            await shop.wait(machine.id, WaitState.STARTED)
            await shop.close()
