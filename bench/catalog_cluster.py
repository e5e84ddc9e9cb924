"""What the catalog does among nodes, over real sockets on loopback and with files on disk: how soon all have what some
write, an event at another node, a new node, a partition, one great transaction, how much goes in a second, and what a
node costs that has nothing to do. All nodes of a row share one process, and so one processor, where not said otherwise.

    PYTHONPATH=. python bench/catalog_cluster.py [--folder DIR] [--rows N] [--seconds N] [--only NAME ...]
"""

import argparse
import os
import random
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import TypeAlias

import anyio
import msgspec
from anyio.abc import ByteSendStream
from anyio.streams.buffered import BufferedByteReceiveStream
from catalog_hosts import (
    LINKS,
    PATIENCE_S,
    SETTLE_S,
    Begin,
    Host,
    complete,
    counted,
    fleet,
    heads,
    host,
    met,
    node_id,
    place_of,
    some,
    until,
)
from catalog_storage import timed

from hawker.catalog.change import Scope
from hawker.catalog.contract import LocalTransaction, ResultTable, Statement
from hawker.catalog.storage import SqliteStorage
from hawker.clock import SystemClock
from hawker.errors import Unavailable
from hawker.gossip.keyring import GossipKeyring, new_keyring
from hawker.ids import NodeId

Figure: TypeAlias = tuple[str, str]

STRESS_HOSTS, STRESS_ROWS, STRESS_ROWS_PER_TX, AT_A_TIME = (30, 45), 800, 20, 10
LAN_HOSTS, EVENTS, BETWEEN_S = 10, 300, 0.05
FRESH_ROWS_PER_TX, GROUP = 256, 64
READS_EVERY_S = 0.01
CUT_HOSTS, MISSED, WRITERS = 5, 10_000, 50
LARGE_HOSTS, LARGE_ROWS = 5, 50_000
BUSY_HOSTS, RATES, TRIAL_S, KEPT, GAP_S = 10, (25, 50, 100, 200, 400, 800), 4.0, 0.95, 1.0
IDLE_HOSTS, CALM_S, IDLE_S = 30, 15.0, 20.0

INSERT = """INSERT INTO machines
    (node, id, app, name, state, version, image, private_ip, metadata, created_at, updated_at) {values}
    ON CONFLICT DO UPDATE SET state = excluded.state, updated_at = excluded.updated_at"""
ONE = INSERT.format(values="VALUES (?1, ?2, 'web', 'web-' || ?2, ?3, 'v1', 'sha256:5f2a', 'fdaa:1::2', '{}', ?4, ?4)")
MANY = f"""WITH RECURSIVE n (i) AS (SELECT ?2 UNION ALL SELECT i + 1 FROM n WHERE i < ?3)
    {INSERT}""".format(
    values="""SELECT ?1, printf('%014d', i), 'web', 'web-' || i, 'started', hex(randomblob(8)), 'sha256:5f2a',
    'fdaa:1::' || (i % 65536), '{}', ?4, ?4 FROM n WHERE true"""
)


def one(node: NodeId, name: str, state: str) -> Statement:
    return Statement(query=ONE, params=(node, name, state, time.time()))


def many(node: NodeId, begin: int, count: int) -> Statement:
    return Statement(query=MANY, params=(node, begin, begin + count - 1, time.time()))


async def stress(count: int, per_tx: int, folder: Path) -> list[Figure]:
    """As Corrosion's test of that name: the rows come from nodes chosen by chance, ten transactions at a time. Half of
    the nodes, which write nothing, are in a second process."""
    chance, ring = random.Random(count), new_keyring(SystemClock())
    turns = anyio.CapacityLimiter(AT_A_TIME)
    async with some(range(count // 2), folder, ring) as hosts, beside(hosts, count, folder, ring) as process:
        await process.line()
        await met(hosts, count)
        await anyio.sleep(SETTLE_S)
        cost = time.process_time()
        with timed() as took:
            async with anyio.create_task_group() as tasks:
                for begin in range(0, STRESS_ROWS, per_tx):
                    tasks.start_soon(insert, chance.choice(hosts), range(begin, begin + per_tx), turns)
            await process.stdin.send(msgspec.json.encode(heads(hosts)) + b"\n")
            await complete(hosts)
            there = await process.line()
        cost = time.process_time() - cost
        assert [await counted(each) for each in hosts] == [STRESS_ROWS] * len(hosts)
        assert int(there) == STRESS_ROWS
    figure = f"{took():.2f} s, {cost:.1f} s of a processor in one of the two processes"
    return [(f"{count} nodes, {STRESS_ROWS} rows, {per_tx} a transaction, all have all", figure)]


async def insert(owner: Host, numbers: range, turns: anyio.CapacityLimiter) -> None:
    async with turns:
        await owner.replica.transact([one(owner.id, f"{number:04}", "started") for number in numbers])


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    pid: int
    stdin: ByteSendStream
    stdout: BufferedByteReceiveStream

    async def line(self) -> bytes:
        with anyio.fail_after(PATIENCE_S):
            return await self.stdout.receive_until(b"\n", 100)


@asynccontextmanager
async def beside(hosts: Sequence[Host], of: int, folder: Path, ring: GossipKeyring) -> AsyncIterator[Process]:
    """The rest of a fleet of so many, in a process of their own."""
    seeds = tuple(each.gossip.me.address for each in hosts[:LINKS])
    begin = Begin(first=len(hosts), count=of - len(hosts), of=of, folder=str(folder), ring=ring, seeds=seeds)
    command = [sys.executable, str(Path(__file__).with_name("catalog_hosts.py"))]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdin is not None and process.stdout is not None
        await process.stdin.send(msgspec.json.encode(begin) + b"\n")
        yield Process(pid=process.pid, stdin=process.stdin, stdout=BufferedByteReceiveStream(process.stdout))
        await process.stdin.aclose()
        await process.wait()


async def events(folder: Path) -> list[Figure]:
    """From the call of `transact`, a disk's sync included, to the event of a live query at another node."""
    samples = []
    async with fleet(LAN_HOSTS, folder) as hosts:
        watched = Statement(query="SELECT node, state FROM machines WHERE id = 'watched'")
        async with hosts[0].replica.subscribe(watched) as told:
            assert isinstance(await anext(told), ResultTable)
            for number in range(EVENTS):
                owner = hosts[1 + number % (LAN_HOSTS - 1)]
                begun = time.perf_counter()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(owner.replica.transact, [one(owner.id, "watched", str(number))])
                    await anext(told)
                    samples.append(time.perf_counter() - begun)
                await anyio.sleep(BETWEEN_S)
    p50, p99 = at(samples, 0.5) * 1000, at(samples, 0.99) * 1000
    return [(f"{LAN_HOSTS} nodes, commit to an event at another node", f"p50 {p50:.1f} ms, p99 {p99:.1f} ms")]


def at(samples: Sequence[float], share: float) -> float:
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * share))]


def load(rows: int, folder: Path) -> None:
    """Into the file of node 0, before it begins."""
    storage = SqliteStorage(place_of(0, folder).catalog, node_id(0), SystemClock())
    for scope in Scope:
        storage.renew(scope, 1)
    starts = range(0, rows, FRESH_ROWS_PER_TX)
    for first in range(0, len(starts), GROUP):
        group = [many(node_id(0), begin, min(FRESH_ROWS_PER_TX, rows - begin)) for begin in starts[first:][:GROUP]]
        storage.commit_all([LocalTransaction(statements=(statement,), at=time.time()) for statement in group])
    storage.close()


async def fresh(rows: int, folder: Path) -> list[Figure]:
    """Both nodes answer a query of a row by its key, in turn, all the while."""
    load(rows, folder)
    ring = new_keyring(SystemClock())
    async with fleet(1, folder, ring) as (old,), anyio.create_task_group() as tasks:
        reads: list[float] = []
        sent, began = old.tap.bytes, time.perf_counter()
        async with host(1, folder, ring, [old.gossip.me.address]) as new:
            tasks.start_soon(reading, (old, new), rows, reads)
            await until(lambda: new.replica.engine.position(Scope.REGION, old.id).applied > 0)
            await complete([old, new])
            took = time.perf_counter() - began
            assert await counted(new) == rows
            tasks.cancel_scope.cancel()
            wire = (old.tap.bytes - sent + new.tap.bytes) / 1e6
    name = f"a new node, {rows:,} rows by a snapshot"
    p50, p99, most = (at(reads, share) * 1000 for share in (0.5, 0.99, 1.0))
    served = f"{len(reads):,} in turn at both, p50 {p50:.1f} ms, p99 {p99:.0f} ms, the longest {most:.0f} ms"
    return [(name, f"{took:.1f} s, {wire:.0f} MB over the wire"), (f"{name}: reads meanwhile", served)]


async def reading(hosts: Sequence[Host], rows: int, reads: list[float]) -> None:
    query = "SELECT state FROM machines WHERE node = ? AND id = ?"
    while True:
        for each in hosts:
            statement = Statement(query=query, params=(node_id(0), f"{random.randrange(rows):014}"))
            with timed() as took:
                await each.replica.query(statement)
            reads.append(took())
        await anyio.sleep(READS_EVERY_S)


async def partition(folder: Path) -> list[Figure]:
    """One node is cut off; the others write, and both sides believe each other down; then it is back, which they have
    to find out by themselves."""
    async with fleet(CUT_HOSTS, folder) as hosts:
        away, *others = hosts
        away.tap.cut = True
        async with anyio.create_task_group() as tasks:
            for each in others:
                for part in range(WRITERS):
                    tasks.start_soon(write, each, MISSED // len(others) // WRITERS, 0.0, f"{part}-")
        await until(lambda: all(each.replica.engine.peers == CUT_HOSTS - 2 for each in others))
        await until(lambda: away.replica.engine.peers == 0)
        await away.replica.transact([one(away.id, "alone", "started")])
        await complete(others)
        away.tap.cut = False
        with timed() as heard:
            await until(lambda: away.replica.engine.peers > 0)
        with timed() as took:
            await complete(hosts)
        assert await counted(away) == MISSED + 1
    figure = f"{heard() + took():.1f} s, of which {heard():.1f} s until one of the others was heard"
    return [(f"{CUT_HOSTS} nodes, one of them cut off, {MISSED:,} changes missed", figure)]


async def write(there: Host, count: int, every_s: float, prefix: str = "") -> None:
    """Rows of their own, one a transaction, one every so often or as soon as the node takes it."""
    begun = time.perf_counter()
    for number in range(count):
        await anyio.sleep(max(0.0, begun + number * every_s - time.perf_counter()))
        while True:
            try:
                await there.replica.transact([one(there.id, f"{prefix}{number:06}", "started")])
                break
            except Unavailable:
                await anyio.sleep(READS_EVERY_S)


async def large(folder: Path) -> list[Figure]:
    async with fleet(LARGE_HOSTS, folder) as hosts:
        worst = [0]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watching, hosts, worst)
            with timed() as committed:
                await hosts[0].replica.transact([many(hosts[0].id, 0, LARGE_ROWS)])
            with timed() as took:
                await complete(hosts)
            await anyio.sleep(2.0)
            tasks.cancel_scope.cancel()
        assert [await counted(each) for each in hosts] == [LARGE_ROWS] * LARGE_HOSTS
        suspected = sum(len(each.suspected) for each in hosts)
    figure = (
        f"committed in {committed():.1f} s, at all {took():.1f} s later; {suspected} suspected, health {worst[0]} of 8"
    )
    return [(f"{LARGE_HOSTS} nodes, one transaction of {LARGE_ROWS:,} rows", figure)]


async def watching(hosts: Sequence[Host], worst: list[int]) -> None:
    """The worst that any thought of its own health, which each probe without an answer makes worse by one."""
    while True:
        worst[0] = max(worst[0], *(each.gossip.local_health for each in hosts))
        await anyio.sleep(READS_EVERY_S)


async def busy(seconds: float, folder: Path) -> list[Figure]:
    """The highest of some rates that they keep up with for a few seconds, then for as long as asked."""
    best = RATES[0]
    async with fleet(BUSY_HOSTS, folder) as hosts:
        for rate in RATES:
            written, gap, _ = await pace(hosts, rate, TRIAL_S)
            if written < rate * KEPT or gap > GAP_S:
                break
            best = rate
        written, gap, cost = await pace(hosts, best, seconds)
    kept = f"{written:,.0f}/s for {seconds:.0f} s, all have all {gap:.2f} s after the last"
    figure = f"{kept}; {cost * 1e3:.2f} ms of one processor for each of its {BUSY_HOSTS} copies"
    return [(f"{BUSY_HOSTS} nodes that all write, one row a transaction", figure)]


async def pace(hosts: Sequence[Host], rate: int, seconds: float) -> tuple[float, float, float]:
    """How many a second were written, how long after that all had all, and the processor's time of one copy."""
    count = int(rate * seconds / len(hosts))
    cost = time.process_time()
    with timed() as writing:
        async with anyio.create_task_group() as tasks:
            for each in hosts:
                tasks.start_soon(write, each, count, len(hosts) / rate)
    with timed() as gap:
        await complete(hosts)
    cost = time.process_time() - cost
    done = count * len(hosts)
    return done / writing(), gap(), cost / done / len(hosts)


async def idle(folder: Path) -> list[Figure]:
    """Of a node in a process of its own, the others in this one."""
    ring = new_keyring(SystemClock())
    async with some(range(IDLE_HOSTS - 1), folder, ring) as hosts, beside(hosts, IDLE_HOSTS, folder, ring) as process:
        await process.line()
        await anyio.sleep(CALM_S)
        before = used_s(process.pid)
        await anyio.sleep(IDLE_S)
        share, memory = (used_s(process.pid) - before) / IDLE_S, resident_bytes(process.pid) / 1e6
    return [(f"one node of {IDLE_HOSTS}, idle", f"{share:.1%} of one processor, {memory:.0f} MB resident")]


def used_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def rows_of(rows: int, seconds: float) -> Mapping[str, Sequence[Callable[[Path], Awaitable[list[Figure]]]]]:
    each = [(count, per_tx) for count in STRESS_HOSTS for per_tx in (STRESS_ROWS_PER_TX, 1)]
    return {
        "stress": [partial(stress, count, per_tx) for count, per_tx in each],
        "events": [events],
        "fresh": [partial(fresh, rows)],
        "partition": [partition],
        "large": [large],
        "busy": [partial(busy, seconds)],
        "idle": [idle],
    }


def measure(rows: int, seconds: float, folder: Path, only: Sequence[str] = ()) -> Iterator[Figure]:
    """A name and a figure at a time."""
    for name, measures in rows_of(rows, seconds).items():
        for one_of in measures if not only or name in only else ():
            here = Path(mkdtemp(dir=folder, prefix="catalog-cluster-"))
            try:
                yield from anyio.run(one_of, here, backend_options={"use_uvloop": True})
            finally:
                shutil.rmtree(here)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--rows", type=int, default=1_000_000, help="that a new node finds")
    parser.add_argument("--seconds", type=float, default=30.0, help="of writing all the time")
    parser.add_argument("--only", nargs="*", default=(), choices=list(rows_of(0, 0)))
    asked = parser.parse_args()
    for name, figure in measure(asked.rows, asked.seconds, asked.folder, asked.only):
        print(f"| {name} | {figure} |", flush=True)


if __name__ == "__main__":
    main()
