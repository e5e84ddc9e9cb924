"""How long a machine is away when it moves with its volume, warm and cold in one run, between two daemons of this host;
and what its writes cost meanwhile: a program in the machine that syncs 4 KiB over and over, timed with its start.

    python bench/move.py [MIB STORED] [GB OF THE VOLUME] [ROUNDS]
"""

import re
import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, time

import anyio

from hawker.api.contract.machine import Machine
from hawker.api.contract.move import GET_MOVE, MOVE_MACHINE, Move, MoveParams, MoveRequest
from hawker.errors import HawkerError
from tests.e2e.images import toolbox, write_layout
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_join import Host
from tests.e2e.test_volumes import make
from tests.e2e.two_hosts import met, two_hosts
from tests.waiting import eventually

WITHIN_S = 900.0
WRITES = """while true; do a=${EPOCHREALTIME/[.,]/}
dd if=/dev/zero of=/data/probe bs=4k count=1 oflag=dsync conv=notrunc status=none; b=${EPOCHREALTIME/[.,]/}
echo $a $((b-a)) >> /data/times; done"""


async def started(shop: Shop, image: str, gb: int, mib: int) -> Machine:
    volume = await make(shop, region="mad", size_gb=gb)
    config = {
        "image": image,
        "guest": {"memory_mb": 256},
        "mounts": [{"volume": volume.id, "path": "/data"}],
        "init": {"exec": ["/bin/bash", "-c", WRITES]},
        "stop_config": {"signal": "SIGKILL", "timeout": 1},
    }

    async def ran() -> Machine | None:
        try:
            return await shop.run(config, name="writes")
        except HawkerError:
            return None

    machine = await eventually(ran, WITHIN_S)
    assert machine is not None
    for _ in range(mib // 64):
        await shop.shell(machine.id, "dd if=/dev/urandom of=/data/big bs=1M count=64 oflag=append conv=notrunc")
    return machine


async def moved(shop: Shop, machine: Machine, to: str, mode: str) -> tuple[Move, float]:
    """And the seconds from the order to its end."""
    began = monotonic()

    async def ordered() -> Move | None:
        try:
            return await shop.client.call(
                MOVE_MACHINE, params=shop.params(machine.id), body=MoveRequest(to=to, mode=mode)
            )
        except HawkerError:
            return None

    made = await eventually(ordered, WITHIN_S)
    assert made is not None

    async def over() -> Move | None:
        try:
            move = await shop.client.call(GET_MOVE, params=MoveParams(move_id=made.id))
        except HawkerError:
            return None
        return move if move.state in ("done", "aborted") else None

    move = await eventually(over, WITHIN_S)
    assert move is not None and move.state == "done", move
    await shop.wait(machine.id, "started")
    return move, monotonic() - began


async def writes(shop: Shop, machine: Machine, begin: float, end: float) -> list[float]:
    """Milliseconds of each write that began between these moments."""
    text = await shop.said(machine.id, "tail", "-n", "3000", "/data/times")
    pairs = [(int(each[1]) / 1e6, int(each[2]) / 1e3) for each in re.finditer(r"^(\d+) (\d+)$", text, re.M)]
    return [ms for at, ms in pairs if begin <= at < end]


def told(name: str, ms: list[float]) -> str:
    if len(ms) < 10:
        return f"{name}: {len(ms)} writes"
    return (
        f"{name}: p50 {statistics.median(ms):.1f} ms, p99 {sorted(ms)[int(len(ms) * 0.99)]:.1f} ms of {len(ms)} writes"
    )


async def measure(hosts: tuple[Host, Host], image: str, mib: int, gb: int, rounds: int) -> None:
    await met(hosts)
    async with hosts[0].node.client() as client:
        shop = Shop(client, "bench")

        async def opened() -> bool:
            try:
                return bool(await shop.open())
            except HawkerError:
                return False

        await eventually(opened, WITHIN_S)
        machine = await started(shop, image, gb, mib)
        assert machine.config is not None and machine.config.mounts
        volume = str(machine.config.mounts[0].volume)
        for _ in range(rounds):
            for mode in ("cold", "warm"):
                here = 0 if (hosts[0].node.data_dir / "volumes" / volume / "disk").exists() else 1
                now = time()
                before = await writes(shop, machine, now - 3, now)  # a later look gets the end only
                move, took = await moved(shop, machine, hosts[1 - here].node.node_id, mode)
                print(
                    f"{move.mode}: {move.stored_bytes >> 20} MiB stored of {gb} GB, away {move.away_ms} ms,"
                    f" {move.rate >> 20} MiB/s, {took:.1f} s in all, {move.copied_bytes >> 20} MiB copied"
                )
                if mode == "warm":
                    began = move.created_at.timestamp()
                    await anyio.sleep(3)
                    end = began + took - (move.away_ms or 0) / 1000
                    print(told("  writes during the copy", await writes(shop, machine, began, end)))
                    print(told("  writes before", before))


def main(mib: int, gb: int, rounds: int) -> None:
    with TemporaryDirectory(prefix="hawker-bench-") as place:
        image = write_layout(Path(place) / "layout", toolbox(Path(place) / "programs"))
        room = ("--disk-mib", str(4 * gb * 1024))  # most of a volume is not stored
        with two_hosts(Path(place), (room, room)) as hosts:
            anyio.run(measure, hosts, image, mib, gb, rounds)


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    main(*given, *(1024, 10, 2)[len(given) :])
