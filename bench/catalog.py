"""What was asked of the catalog and what it reached, in one table: among nodes over sockets (`catalog_cluster.py`), the
HTTP API on one node (`catalog_http.py`), how a change spreads over simulated hosts, and the database alone
(`catalog_storage.py`).

    PYTHONPATH=. python bench/catalog.py [--rows N] [--folder DIR] [--hosts N ...] [--seconds N]

The folder says which disk; /dev/shm is one in memory. What nothing here measures is not in the table: it is listed
below it.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import catalog_cluster
import catalog_http
import catalog_storage

from hawker.sim.catalog.spread import spread

CHANGES = 20
LOSS = 0.01
REGIONS = {10: 3, 100: 5, 1000: 10}

ASKED = {
    "30 nodes, 800 rows, 20 a transaction, all have all": "3 s",
    "30 nodes, 800 rows, 1 a transaction, all have all": "-",
    "45 nodes, 800 rows, 20 a transaction, all have all": "5 s",
    "10 nodes, commit to an event at another node": "p50 20 ms, p99 60 ms",
    "a new node, 1,000,000 rows by a snapshot": "15 s over 1 Gbit/s",
    "a new node, 1,000,000 rows by a snapshot: reads meanwhile": "served",
    "5 nodes, one of them cut off, 10,000 changes missed": "5 s",
    "5 nodes, one transaction of 50,000 rows": "at all, no probe missed",
    "10 nodes that all write, one row a transaction": "1,000/s over 100 hosts for 10 minutes, no gap at the end",
    "one node of 30, idle": "2 % of a processor and 120 MB, of 1,000",
    "POST /v1/transactions of one row, 1 connections": "1,000/s",
    "POST /v1/transactions of one row, 16 connections": "1,000/s, p99 15 ms",
    "POST /v1/transactions of one row, 64 connections": "1,000/s",
    "commit to subscription event, one node": "p50 20 ms, p99 60 ms",
    "remote apply, random rows of 1,000,000, 100 a transaction": "5,000 rows/s on disk, 20,000 in memory",
    "remote apply, random rows of 1,000,000, 1 a transaction": "5,000 rows/s on disk, 20,000 in memory",
    "bytes per row of 4 small columns, all told": "84 (a third of cr-sqlite's)",
    "snapshot of 1,000,000 rows: made": "15 s with the installing, over 1 Gbit/s",
    "snapshot of 1,000,000 rows: installed": "15 s with the making",
    "delta of 1,000,000 rows in parts of 1 MiB": "60 s",
    "add a column": "0 changes, 1,000 ms",
    "a change over 100 simulated hosts, 1 % loss": "p50 60 ms, p99 250 ms, p99.9 2 s",
    "a change over 1,000 simulated hosts, 1 % loss": "p99 400 ms, 9 copies",
}
"""By the name of the row."""

NOT_HERE = (
    "anything over a network, or with a machine for each node",
    "100 hosts or more over sockets; 1,000 transactions a second for 10 minutes; an idle node among 1,000",
    "crash to suspect and down, false downs: see gossip.py",
    "cr-sqlite beside it",
)


def spreading(hosts: int) -> Iterator[tuple[str, str]]:
    found = spread(hosts, regions=REGIONS.get(hosts, 5), loss=LOSS, changes=CHANGES)
    p50, p99, last = found.p50_s * 1000, found.p99_s * 1000, found.all_s * 1000
    figure = f"p50 {p50:.0f} ms, p99 {p99:.0f} ms, the last one {last:.0f} ms, {found.copies:.1f} copies"
    yield f"a change over {hosts:,} simulated hosts, 1 % loss", figure


def measured(rows: int, folder: Path, hosts: list[int], seconds: float) -> Iterator[tuple[str, str]]:
    yield from catalog_cluster.measure(rows, seconds, folder)
    yield from catalog_http.measure(folder)
    for count in hosts:
        yield from spreading(count)
    yield from catalog_storage.measure(rows, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--hosts", type=int, nargs="*", default=[100, 1000])
    parser.add_argument("--seconds", type=float, default=30.0, help="of writing all the time")
    asked = parser.parse_args()
    print("| What | Asked | Reached |\n|---|---|---|")
    for name, figure in measured(asked.rows, asked.folder, asked.hosts, asked.seconds):
        print(f"| {name} | {ASKED.get(name, '-')} | {figure} |", flush=True)
    print("\nNot measured here: " + "; ".join(NOT_HERE) + ".")


if __name__ == "__main__":
    main()
