"""What was asked of the catalog and what it reached, in one table: the database alone (`catalog_storage.py`), the HTTP
API on one node (`catalog_http.py`), and how a change spreads over simulated hosts.

    PYTHONPATH=. python bench/catalog.py [--rows N] [--folder DIR] [--hosts N ...]

The folder says which disk; /dev/shm is one in memory. What nothing here measures is not in the table: it is listed
below it.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import catalog_http
import catalog_storage

from hawker.sim.catalog.spread import spread

CHANGES = 20
LOSS = 0.01
REGIONS = {10: 3, 100: 5, 1000: 10}

ASKED = {
    "POST /v1/transactions of one row, 1 connections": "1,000/s",
    "POST /v1/transactions of one row, 16 connections": "1,000/s, p99 15 ms",
    "commit to subscription event, one node": "p50 20 ms, p99 60 ms, also from one host to another",
    "remote apply, random rows of 1,000,000, 100 a transaction": "5,000 rows/s on disk, 20,000 in memory",
    "remote apply, random rows of 1,000,000, 1 a transaction": "5,000 rows/s on disk, 20,000 in memory",
    "bytes per row of 5 small columns, all told": "84 (a third of cr-sqlite's)",
    "snapshot of 1,000,000 rows: made": "15 s with the installing, over 1 Gbit/s",
    "snapshot of 1,000,000 rows: installed": "15 s with the making",
    "delta of 1,000,000 rows in parts of 1 MiB": "60 s",
    "add a column": "0 changes, 1,000 ms",
    "a change over 100 simulated hosts, 1 % loss": "p50 60 ms, p99 250 ms, p99.9 2 s",
    "a change over 1,000 simulated hosts, 1 % loss": "p99 400 ms, 9 copies",
}
"""By the name of the row."""

NOT_HERE = (
    "a LAN of 10 real hosts, commit to remote event",
    "1,000 transactions a second over 100 hosts for 10 minutes",
    "a fresh node over a network, a reconnect after a partition, 30 and 45 nodes with 800 rows",
    "crash to suspect and down, false downs",
    "memory and processor of an idle node in a fleet of 1,000",
)


def spreading(hosts: int) -> Iterator[tuple[str, str]]:
    found = spread(hosts, regions=REGIONS.get(hosts, 5), loss=LOSS, changes=CHANGES)
    p50, p99, last = found.p50_s * 1000, found.p99_s * 1000, found.all_s * 1000
    figure = f"p50 {p50:.0f} ms, p99 {p99:.0f} ms, the last one {last:.0f} ms, {found.copies:.1f} copies"
    yield f"a change over {hosts:,} simulated hosts, 1 % loss", figure


def measured(rows: int, folder: Path, hosts: list[int]) -> Iterator[tuple[str, str]]:
    yield from catalog_http.measure(folder)
    for count in hosts:
        yield from spreading(count)
    yield from catalog_storage.measure(rows, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--hosts", type=int, nargs="*", default=[100, 1000])
    asked = parser.parse_args()
    print("| What | Asked | Reached |\n|---|---|---|")
    for name, figure in measured(asked.rows, asked.folder, asked.hosts):
        print(f"| {name} | {ASKED.get(name, '-')} | {figure} |", flush=True)
    print("\nNot measured here: " + "; ".join(NOT_HERE) + ".")


if __name__ == "__main__":
    main()
