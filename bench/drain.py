"""A host with ten machines and their volumes is drained by one command while a program in each machine syncs 4 KiB over
and over: how long the drain takes, how long each machine is away and makes no write, what the writes cost meanwhile,
and whether each has all its writes afterwards. Between two daemons of this host.

    python bench/drain.py [MIB STORED IN EACH] [MIB A SECOND AT MOST]
"""

import re
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, time

import anyio
import anyio.to_thread

from hawker.api.client import Client
from hawker.api.contract.machine import Machine
from hawker.value_object import ValueObject
from tests.e2e.command_line import CommandLine
from tests.e2e.images import toolbox, write_layout
from tests.e2e.shop import Shop
from tests.e2e.test_drain_volumes import filled
from tests.e2e.test_fleet_join import Host
from tests.e2e.two_hosts import met, two_hosts
from tests.waiting import eventually

WITHIN_S = 240.0
_BEFORE_S = 10.0
_AWAY = re.compile(r"was away for ([\d.]+) s")
_WRITES = """while true; do a=${EPOCHREALTIME/[.,]/}
printf '%4095d\\n' $a | dd of=/data/ledger bs=4096 iflag=fullblock oflag=append,dsync conv=notrunc status=none
b=${EPOCHREALTIME/[.,]/}; echo $a $((b-a)) >> /data/times; sleep 0.1; done"""


class Writes(ValueObject, frozen=True):
    """Of one machine: Unix seconds at which each began, and milliseconds that each took."""

    at: tuple[float, ...]
    took_ms: tuple[float, ...]

    def between(self, since: float, until: float) -> list[float]:
        return [took for at, took in zip(self.at, self.took_ms, strict=True) if since <= at < until]

    @property
    def longest_pause_s(self) -> float:
        return max((after - before for before, after in zip(self.at, self.at[1:], strict=False)), default=0.0)


async def written(shop: Shop, machine: Machine) -> Writes:
    """Raises `AssertionError` unless each write that was acknowledged is in the ledger, as the next life of the program
    found it."""
    rows = [line.split() for line in (await shop.said(machine.id, "cat", "/data/times")).splitlines()]
    kept = set(
        (await shop.said(machine.id, "/bin/bash", "-c", "while read -r at; do echo $at; done < /data/ledger")).split()
    )
    whole = [row for row in rows if len(row) == 2]
    assert {row[0] for row in whole} <= kept, f"a write of machine {machine.id} is lost"
    return Writes(tuple(int(row[0]) / 1e6 for row in whole), tuple(int(row[1]) / 1e3 for row in whole))


async def drained(hosts: Sequence[Host], client: Client, image: str, mib: int, limit: int) -> None:
    full = hosts[0].node
    ledgers = await filled(hosts, client, image, _WRITES)
    for shop, machine in ledgers:
        await shop.shell(machine.id, f"dd if=/dev/urandom of=/data/filler bs=1M count={mib} conv=fsync status=none")
    await anyio.sleep(_BEFORE_S)
    command = CommandLine(full.environment | {"HAWKER_DATA_DIR": str(full.data_dir)})
    bound = ("--limit", str(limit)) if limit else ()
    since, began = time(), monotonic()
    run = command.begin("node", "drain", full.node_id, *bound, "--timeout", "600")
    _, errors = await anyio.to_thread.run_sync(run.communicate)
    took, until = monotonic() - began, time()
    assert run.returncode == 0, errors.decode()
    await anyio.sleep(_BEFORE_S)
    away = sorted(float(found) for found in _AWAY.findall(errors.decode()))
    writes = [await eventually(partial(written, *each), WITHIN_S) for each in ledgers]
    print(f"drained in {took:.1f} s; each machine stores {mib} MiB; limit {limit or 'none'}")
    print(f"away: median {statistics.median(away):.2f} s, longest {away[-1]:.2f} s, of {len(away)}")
    pauses = sorted(each.longest_pause_s for each in writes)
    print(f"no write for: median {statistics.median(pauses):.2f} s, longest {pauses[-1]:.2f} s")
    for name, start, end in (("before", 0.0, since), ("during", since, until), ("after", until, time())):
        _tell(name, [took for each in writes for took in each.between(start, end)])
    print(f"{sum(len(each.at) for each in writes)} writes were acknowledged, and all are there")


def _tell(name: str, took_ms: list[float]) -> None:
    if len(took_ms) > 1:
        cuts = statistics.quantiles(took_ms, n=100)
        print(f"writes {name}: p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, of {len(took_ms)}")


async def measure(hosts: Sequence[Host], image: str, mib: int, limit: int) -> None:
    await met(hosts)
    async with hosts[0].node.client() as client:
        await drained(hosts, client, image, mib, limit)


def main(mib: int, limit: int) -> None:
    with TemporaryDirectory(prefix="hawker-bench-") as place:
        image = write_layout(Path(place) / "layout", toolbox(Path(place) / "programs"))
        with two_hosts(Path(place)) as hosts:
            anyio.run(measure, hosts, image, mib, limit)


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    main(*given, *(64, 0)[len(given) :])
