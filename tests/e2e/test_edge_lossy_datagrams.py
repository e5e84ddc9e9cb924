"""Datagrams to machines of another host while a fifth of the packets between the two hosts is lost: each comes once at
most, to its own machine, and its answer to its own client.

How many are answered says nothing: 400 of 400 are usual, and 0 was met. The packets that are lost are those of the one
TCP connection between the two edges, so its datagrams are late, not lost. But where it stands still for seconds just
when flows ask to be let in, each of them keeps its first four datagrams and drops the others until it is.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from anyio.to_thread import run_sync

from hawker.chaos.fleet.network_lab import LabHost
from hawker.chaos.fleet.real_fleet import LabFleet
from hawker.chaos.hostile.python_image import PYTHON, REFERENCE, write_python_image
from hawker.config import PUBLISH
from hawker.errors import BadRequest
from hawker.feed import EVERYWHERE
from tests.e2e.command_line import CommandLine
from tests.e2e.edge_hosts import edge_hosts
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_images import SMALL
from tests.waiting import eventually

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.long(
        reason="two real hosts; tests/edge/test_datagram_hops.py and tests/e2e/test_edge_datagrams.py have the hop"
    ),
]
PORTS = {b"one": 15_360, b"two": 15_361}
WITHIN_S, LOST_PERCENT, CLIENTS, ROUNDS, QUIET_S = 120.0, 20, 8, 25, 2.0
SERVE = """
import collections, socket, sys
heard = collections.Counter()
place = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
place.bind(("fly-global-services", 5353))
while True:
    data, client = place.recvfrom(65535)
    heard[data] += 1
    place.sendto(b"%s %d %s" % (sys.argv[1].encode(), heard[data], data), client)
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[LabFleet]:
    with edge_hosts(tmp_path, 2) as fleet:
        yield fleet


def heard_by_clients(address: str) -> list[tuple[bytes, bytes, list[bytes]]]:
    """Of each client its machine, what its datagrams begin with, and all answers that came. No datagram is sent
    twice."""
    with ExitStack() as stack:
        clients = list[tuple[bytes, bytes, socket.socket, list[bytes]]]()
        for number in range(CLIENTS):
            for name, port in PORTS.items():
                sender = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                sender.connect((address, port))
                clients.append((name, b"%s-%d-" % (name, number), sender, []))
        for turn in range(ROUNDS):
            for _, mark, sender, came in clients:
                sender.settimeout(0.02)
                sender.send(b"%s%d" % (mark, turn))
                came.extend(received(sender))
        for _, _, sender, came in clients:
            sender.settimeout(QUIET_S)
            came.extend(received(sender))
        return [(name, mark, came) for name, mark, _, came in clients]


def received(sender: socket.socket) -> Iterator[bytes]:
    """What comes until nothing does for a while."""
    try:
        while True:
            yield sender.recv(1000)
    except OSError:
        return


def sent_again(host: LabHost) -> int:
    """Packets of its TCP connections."""
    names, values = (
        line.split() for line in host.run("cat", "/proc/thread-self/net/snmp").splitlines() if "Tcp:" in line
    )
    return int(values[names.index("RetransSegs")])


def answers(address: str, name: bytes) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.settimeout(1)
        asker.connect((address, PORTS[name]))
        try:
            asker.send(b"?")
            return asker.recv(100).startswith(name)
        except OSError:
            return False


async def test_datagrams_over_a_lossy_way_come_once_at_most_and_to_nobody_else(fleet: LabFleet, tmp_path: Path) -> None:
    here, there = fleet.stalls
    node = there.daemon
    write_python_image(tmp_path / "image")
    hawker = CommandLine(node.environment | {"HAWKER_URL": node.url, "HAWKER_TOKEN": node.token})
    hawker.say("images", "import", str(tmp_path / "image"), "--as", REFERENCE)
    async with node.client() as client:
        for name, port in PORTS.items():
            shop = await Shop(client, name.decode()).open()
            config = {
                "image": REFERENCE,
                "init": {"exec": [PYTHON, "-c", SERVE, name.decode()]},
                "services": [{"protocol": "udp", "internal_port": 5353, "ports": [{"port": port}]}],
                "metadata": {"hawker_labels": "host=1", PUBLISH: EVERYWHERE},
                **SMALL,
            }
            await shop.run_somewhere(config, BadRequest)
        for name in PORTS:
            await eventually(partial(run_sync, answers, here.host.address, name), WITHIN_S)
        before = sent_again(here.host)
        here.host.drop_from([there.host], percent=LOST_PERCENT)
        there.host.drop_from([here.host], percent=LOST_PERCENT)
        heard = await run_sync(heard_by_clients, here.host.address)
        fleet.lab.heal()
        for name in PORTS:  # however many were answered: once nothing is lost, all are
            await eventually(partial(run_sync, answers, here.host.address, name), WITHIN_S)
    assert sent_again(here.host) > before, "packets were lost"
    for name, mark, came in heard:
        sent = {b"%s 1 %s%d" % (name, mark, turn) for turn in range(ROUNDS)}
        assert len(came) == len(set(came)), "none twice at its client"
        assert set(came) <= sent, "none twice at its machine, at another one, or for another client"
    print(f"{sum(len(came) for _, _, came in heard)} answers of {CLIENTS * len(PORTS) * ROUNDS}")
