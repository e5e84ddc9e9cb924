"""A host with ten machines and their volumes is drained while each of them writes; the command is killed, and given
again.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO

import anyio
import anyio.to_thread
import pytest

from hawker.api.client import Client
from hawker.api.contract.cluster import CORDON_NODE, UNCORDON_NODE, NodeParams
from hawker.api.contract.machine import Machine
from hawker.api.contract.volume import Volume
from hawker.errors import HawkerError
from tests.e2e.command_line import CommandLine
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_join import WITHIN_S, Host
from tests.e2e.test_volumes import make
from tests.e2e.two_hosts import met, two_hosts
from tests.waiting import eventually

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.long(
        reason="ten machines move one after the other; tests/cli/commands/node/test_drain.py is the short form"
    ),
    pytest.mark.timeout(1800),  # twenty machines begin, one after the other
]

MACHINES = 10
LEDGER = """
test -f /data/filler || dd if=/dev/urandom of=/data/filler bs=1M count=24
i=$(tail -n 1 /data/ledger || echo 0)
while true; do i=$((i+1)); echo $i >> /data/ledger; sync /data/ledger; sleep 0.25; done"""


async def filled(hosts: Sequence[Host], client: Client, image: str, program: str) -> list[tuple[Shop, Machine]]:
    """The first host gets machines that run `program` with a volume at /data, the second none. In an app each, so that
    an app's turn does not matter."""
    empty = NodeParams(node_id=hosts[1].node.node_id)
    cordon = partial(client.call, CORDON_NODE, params=empty)
    await eventually(partial(quietly, cordon), WITHIN_S)  # that it lives is known before where it answers
    found = list[tuple[Shop, Machine]]()
    for number in range(MACHINES):
        shop = Shop(client, f"drained-{number}")
        await eventually(partial(quietly, shop.open), WITHIN_S)
        volume = await eventually(partial(quietly, partial(make, shop, region="mad")), WITHIN_S)
        assert isinstance(volume, Volume)
        config = {
            "image": image,
            "guest": {"memory_mb": 64},
            "mounts": [{"volume": volume.id, "path": "/data"}],
            "init": {"exec": ["/bin/bash", "-c", program]},
            "stop_config": {"signal": "SIGKILL", "timeout": 1},
        }
        machine = await eventually(partial(quietly, partial(shop.run, config, name="ledger")), WITHIN_S)
        assert isinstance(machine, Machine)
        found.append((shop, machine))
    await client.call(UNCORDON_NODE, params=empty)
    return found


async def quietly(ask: Callable[[], Awaitable[object]]) -> object:
    try:
        return await ask()
    except HawkerError:
        return None


async def numbers(shop: Shop, machine: Machine) -> list[int]:
    return [int(line) for line in (await shop.said(machine.id, "cat", "/data/ledger")).split()]


async def latest(shop: Shop, machine: Machine) -> int:
    """Its last number; 0 before it wrote one."""
    said = await shop.shell(machine.id, "tail -n 1 /data/ledger")
    return int(said.stdout.strip() or 0)


def read_until(stream: IO[bytes], wanted: str, told: list[str]) -> None:
    while line := stream.readline().decode():
        told.append(line.rstrip())
        if wanted in line:
            return
    pytest.fail(f"never said {wanted!r}: {told}")


def files(host: Host) -> int:
    return len(list((host.node.data_dir / "volumes").glob("vol_*/disk")))


async def test_machines_leave_with_their_volumes_and_lose_nothing(tmp_path: Path, toolbox_image: str) -> None:
    with two_hosts(tmp_path) as hosts:
        await met(hosts)
        async with hosts[0].node.client() as client:
            await drained(hosts, client, toolbox_image)


async def drained(hosts: Sequence[Host], client: Client, image: str) -> None:
    full, empty = hosts
    ledgers = await filled(hosts, client, image, LEDGER)
    assert (files(full), files(empty)) == (MACHINES, 0)
    before = [await eventually(partial(latest, *each), WITHIN_S) for each in ledgers]

    command = CommandLine(full.node.environment | {"HAWKER_DATA_DIR": str(full.node.data_dir)})
    words = ("node", "drain", full.node.node_id, "--limit", "8", "--timeout", "300")
    told = list[str]()
    first = command.begin(*words)
    assert first.stderr is not None
    for wanted in ("moved with its volume", "moved with its volume", "running, and copying"):
        await anyio.to_thread.run_sync(read_until, first.stderr, wanted, told)
    first.kill()
    first.communicate()
    told.append("-- killed, and given again --")
    second = command.begin(*words)
    out, errors = await anyio.to_thread.run_sync(second.communicate)
    told += errors.decode().splitlines()
    print("\n".join(told), out.decode(), sep="\n")

    assert second.returncode == 0, told
    assert (files(full), files(empty)) == (0, MACHINES)
    assert any(re.search(r"copying [\d.]+ MiB of [\d.]+ MiB, [\d.]+ MiB/s, \d+ s left", line) for line in told)
    for number, (shop, machine) in enumerate(ledgers):
        assert (await shop.get(machine.id)).state == "started"
        kept = await numbers(shop, machine)
        assert kept == list(range(1, len(kept) + 1)) and kept[-1] > before[number], f"machine {number}"
