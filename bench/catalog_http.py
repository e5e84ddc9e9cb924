"""What the catalog's HTTP API does on one node: transactions a second at 1, 16 and 64 connections, and how long after
its answer a commit is told to a subscription, over HTTP on loopback. The node is put together as `hawker up` does it,
without a worker and others to tell; what it answers is on disk. `bench/catalog.py` calls `measure`; alone:
`PYTHONPATH=. python bench/catalog_http.py [--folder DIR]`.

Each load is no more than what the node takes at once, so that its limit of 1,000 a second does not show.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

import aiohttp
import anyio
import anyio.to_thread

from hawker.catalog.change import Scope
from hawker.catalog.http.server import bind, serving
from hawker.catalog.replica import TXS_AT_ONCE, TXS_PER_S
from hawker.catalog.storage import SqliteStorage
from hawker.clock import SystemClock
from hawker.fleet.gossip_bridge import GossipBridge
from hawker.ids import NodeId
from hawker.place import Place
from hawker.record.node import NodeRecord
from hawker.up.catalog import own_catalog

TRANSACTIONS, WARM = TXS_AT_ONCE - 128, 128
REST_S = TXS_AT_ONCE / TXS_PER_S
CONNECTIONS = (1, 16, 64)
NODE = NodeId("0badcafe")
EVENTS = 300
BETWEEN_S = 0.02
SQL = "INSERT INTO machines (node, id, state) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET state = excluded.state"
_KIND = {"content-type": "application/json"}

_CLIENT = """
import asyncio, json, re, sys, time, uvloop
host, token, connections, total, warm, sql, node = json.loads(sys.argv[1])
samples, spans = [], []
HEAD = "\\r\\n".join([
    "POST /v1/transactions HTTP/1.1", "Host: bench", f"Authorization: Bearer {token}",
    "Content-Type: application/json", "Content-Length: %d", "", "",
])
async def run(which):
    reader, writer = await asyncio.open_connection(*host.split(":"))
    for number in range(warm + total // connections):
        body = json.dumps([[sql, [node, f"{which}-{number % 500}", str(number)]]])
        begun = time.perf_counter()
        writer.write((HEAD % len(body) + body).encode())
        head = await reader.readuntil(b"\\r\\n\\r\\n")
        await reader.readexactly(int(re.search(rb"content-length: (\\d+)", head)[1]))
        ended = time.perf_counter()
        assert head.startswith(b"HTTP/1.1 200"), head
        if number >= warm:
            samples.append(ended - begun)
            spans.append((begun, ended))
    writer.close()
async def main():
    await asyncio.gather(*map(run, range(connections)))
uvloop.run(main())
print(json.dumps([samples, max(end for _, end in spans) - min(begin for begin, _ in spans)]))
"""


def measure(folder: Path) -> Iterator[tuple[str, str]]:
    """A name and a figure at a time."""
    here = Path(mkdtemp(dir=folder, prefix="catalog-http-"))
    try:
        yield from anyio.run(_all, here, backend_options={"use_uvloop": True})
    finally:
        shutil.rmtree(here)


@asynccontextmanager
async def node(here: Path) -> AsyncIterator[tuple[str, str]]:
    """The URL and the token of one."""
    clock, place = SystemClock(), Place(here)
    storage = SqliteStorage(place.catalog, NODE, clock)
    for scope in Scope:
        storage.renew(scope, 1)
    record = NodeRecord(id=NODE, region="bench", created_at=clock.now())
    kept = own_catalog(storage, record, place, clock, GossipBridge())
    assert kept.app is not None
    async with kept.running(), serving(kept.app, bind("127.0.0.1:0")) as url:
        yield url, place.token.read_text().strip()


async def _all(here: Path) -> list[tuple[str, str]]:
    found = []
    async with node(here) as (url, token):
        for connections in CONNECTIONS:
            samples, span_s = await anyio.to_thread.run_sync(partial(_load, url, token, connections))
            p50, p99 = _percentiles(samples)
            figure = f"{len(samples) / span_s:,.0f}/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms"
            await anyio.sleep(REST_S)
            found.append((f"POST /v1/transactions of one row, {connections} connections", figure))
        p50, p99 = _percentiles(await _events(url, token))
        found.append(("commit to subscription event, one node", f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"))
    return found


def _load(url: str, token: str, connections: int) -> tuple[list[float], float]:
    """From a process of its own."""
    asked = json.dumps([url.removeprefix("http://"), token, connections, TRANSACTIONS, WARM // connections, SQL, NODE])
    done = subprocess.run([sys.executable, "-c", _CLIENT, asked], check=True, capture_output=True, text=True)
    samples, span_s = json.loads(done.stdout)
    return samples, span_s


async def _events(url: str, token: str) -> list[float]:
    """From the answer of the write to the line of the subscription; an event that comes before the answer is 0."""
    samples = []
    query = json.dumps("SELECT id, state FROM machines WHERE id = 'watched'")
    headers = {**_KIND, "authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{url}/v1/subscriptions", data=query) as live,
    ):
        while b"eoq" not in await live.content.readline():
            pass
        for number in range(EVENTS):
            body = json.dumps([[SQL, [NODE, "watched", str(number)]]])
            async with session.post(f"{url}/v1/transactions", data=body) as answer:
                assert answer.status == 200
                await answer.read()
            committed = time.perf_counter()
            await live.content.readline()
            samples.append(time.perf_counter() - committed)
            await anyio.sleep(BETWEEN_S)
    return samples


def _percentiles(samples: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th, milliseconds."""
    ordered = sorted(samples)
    return ordered[len(ordered) // 2] * 1000, ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path())
    for name, figure in measure(parser.parse_args().folder):
        print(f"| {name} | {figure} |", flush=True)


if __name__ == "__main__":
    main()
