"""What the catalog's HTTP API does on one node: transactions a second at 1 and 16 connections, and how long after its
answer a commit is told to a subscription, over HTTP on loopback. Its storage syncs each commit. `bench/catalog.py`
calls `measure`; alone: `PYTHONPATH=. python bench/catalog_http.py [--folder DIR]`.

The node's limit of 500 transactions a second does not apply here: what is measured is what stands behind it.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

import aiohttp
import anyio
import anyio.to_thread

from tests.catalog.served import NODE, Served, served

TRANSACTIONS, WARM = 2_000, 100
CONNECTIONS = (1, 16)
EVENTS = 300
BETWEEN_S = 0.02
SQL = "INSERT INTO machines (node, id, state) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET state = excluded.state"
_KIND = {"content-type": "application/json"}

_CLIENT = """
import http.client, json, sys, threading, time
host, connections, total, warm, sql, node = json.loads(sys.argv[1])
samples, spans = [], []
def run(which):
    connection = http.client.HTTPConnection(host)
    for number in range(warm + total // connections):
        body = json.dumps([[sql, [node, f"{which}-{number % 500}", str(number)]]])
        begun = time.perf_counter()
        connection.request("POST", "/v1/transactions", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        ended = time.perf_counter()
        assert answer.status == 200
        if number >= warm:
            samples.append(ended - begun)
            spans.append((begun, ended))
threads = [threading.Thread(target=run, args=(which,)) for which in range(connections)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps([samples, max(end for _, end in spans) - min(begin for begin, _ in spans)]))
"""


def measure(folder: Path) -> Iterator[tuple[str, str]]:
    """A name and a figure at a time."""
    here = Path(mkdtemp(dir=folder, prefix="catalog-http-"))
    try:
        yield from anyio.run(_all, here, backend_options={"use_uvloop": True})
    finally:
        shutil.rmtree(here)


async def _all(here: Path) -> list[tuple[str, str]]:
    found = []
    async with served(here) as node:
        for connections in CONNECTIONS:
            samples, span_s = await anyio.to_thread.run_sync(partial(_load, node.url, connections))
            p50, p99 = _percentiles(samples)
            figure = f"{len(samples) / span_s:,.0f}/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms"
            found.append((f"POST /v1/transactions of one row, {connections} connections", figure))
        p50, p99 = _percentiles(await _events(node))
        found.append(("commit to subscription event, one node", f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"))
    return found


def _load(url: str, connections: int) -> tuple[list[float], float]:
    """From a process of its own."""
    asked = json.dumps([url.removeprefix("http://"), connections, TRANSACTIONS, WARM // connections, SQL, NODE])
    done = subprocess.run([sys.executable, "-c", _CLIENT, asked], check=True, capture_output=True, text=True)
    samples, span_s = json.loads(done.stdout)
    return samples, span_s


async def _events(node: Served) -> list[float]:
    """From the answer of the write to the line of the subscription; an event that comes before the answer is 0."""
    samples = []
    query = json.dumps("SELECT id, state FROM machines WHERE id = 'watched'")
    url = f"{node.url}/v1/subscriptions"
    async with aiohttp.ClientSession() as session, session.post(url, data=query, headers=_KIND) as live:
        while b"eoq" not in await live.content.readline():
            pass
        for number in range(EVENTS):
            body = json.dumps([[SQL, [NODE, "watched", str(number)]]])
            async with session.post(f"{node.url}/v1/transactions", data=body, headers=_KIND) as answer:
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
