"""What 5,000 machines cost a node: boot time, memory, the list over HTTP, and the processor while nothing happens.

    python bench/scale.py [--machines N] [--running N] [--idle-s S]

The records are made by the daemon itself through its API, on the driver for plain processes and without a launch, so
that each has gone through its whole create flow. Then the daemon is started on a directory without and on the one with
them. Idle is measured a while after `ready`; running machines are taken up by a daemon that did not start them.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec
from bench_node import BenchNode, kept_node
from figures import Samples

_FLAGS = ("--driver", "process", "--cpus", "64", "--memory-mib", "200000")
_SLEEPER = {"image": "hawker/hello", "init": {"exec": ["/bin/sleep", "100000"]}, "guest": {"cpus": 1, "memory_mb": 128}}
_MAKERS = 8
_MAKE_S = 60
_PAGE = 1000
_BOOTS = 5
_LISTS = 50
_SETTLE_S = 5.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """Of a process, at one moment."""

    rss_kib: int
    cpu_s: float
    at: float


def usage(pid: int) -> Usage:
    status = Path(f"/proc/{pid}/status").read_text()
    rss_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Usage(rss_kib, (int(fields[11]) + int(fields[12])) / _TICKS, time.monotonic())


def idle_percent(node: BenchNode, seconds: float) -> float:
    """How much of one processor the daemon uses while nobody calls."""
    time.sleep(_SETTLE_S)
    before = usage(node.pid)
    time.sleep(seconds)
    after = usage(node.pid)
    return 100 * (after.cpu_s - before.cpu_s) / (after.at - before.at)


def make(node: BenchNode, count: int, state: str, **fields: object) -> None:
    """Machines over several connections at once; returns when all of them are in `state`."""

    def some(share: range) -> None:
        mine = node.again()
        for _ in share:
            mine.call("POST", mine.machines, {"config": _SLEEPER, **fields})

    node.make_app()
    with ThreadPoolExecutor(_MAKERS) as makers:
        list(makers.map(some, (range(start, count, _MAKERS) for start in range(_MAKERS))))
    for _ in range(_MAKE_S):
        content, _ = node.fetch("GET", f"{node.machines}?state={state}&summary=true")
        if len(msgspec.json.decode(content)) == count:
            return
        time.sleep(1)
    raise RuntimeError(f"{count} machines were not {state} after {_MAKE_S} s")


def boot_s(data_dir: Path) -> tuple[list[float], int]:
    """How long from the command to `ready`, several times, and the memory of the last."""
    taken, rss_kib = [], 0
    for _ in range(_BOOTS):
        with kept_node(data_dir, *_FLAGS) as node:
            taken.append(node.boot_s)
            rss_kib = usage(node.pid).rss_kib
    return taken, rss_kib


def listed(node: BenchNode, name: str, query: str) -> Samples:
    taken = []
    for _ in range(_LISTS):
        began = time.perf_counter()
        node.fetch("GET", f"{node.machines}{query}")
        taken.append((time.perf_counter() - began) * 1000)
    return Samples(name, taken)


def middle_of(node: BenchNode, count: int) -> str | None:
    """The cursor half-way through the list, page by page: no page has more than a thousand."""
    cursor, left = None, count // 2
    while left > 0:
        size = min(_PAGE, left)
        after = f"&cursor={cursor}" if cursor else ""
        _, cursor = node.fetch("GET", f"{node.machines}?limit={size}{after}")
        left -= size
    return cursor


def lists(node: BenchNode, count: int) -> list[Samples]:
    middle = middle_of(node, count)
    ways = {
        f"first page of {_PAGE:,}": f"?limit={_PAGE}",
        f"page of {_PAGE:,} from the middle": f"?limit={_PAGE}&cursor={middle}",
        f"page of {_PAGE:,}, summary": f"?limit={_PAGE}&summary=true",
        f"all {count:,}": "",
        f"all {count:,}, summary": "?summary=true",
    }
    return [listed(node, name, query) for name, query in ways.items()]


def row(what: str, found: str, asked: str = "") -> None:
    print(f"| {what} | {found} | {asked} |", flush=True)


def seconds(taken: Sequence[float]) -> str:
    return f"{statistics.median(taken):.2f} s (worst {max(taken):.2f})"


def main(count: int, running: int, idle_s: float) -> None:
    print("| what | found | asked |\n|---|---:|---:|")
    with tempfile.TemporaryDirectory(prefix="hawker-bench-") as scratch:
        empty, full, busy = (Path(scratch, name) for name in ("empty", "full", "busy"))
        with kept_node(full, *_FLAGS) as node:
            began = time.perf_counter()
            make(node, count, "stopped", skip_launch=True)
            row(f"create without a launch, {_MAKERS} at once", f"{count / (time.perf_counter() - began):.0f} a second")
        row("store on disk", f"{sum(path.stat().st_size for path in full.glob('hawker.db*')) / 2**20:.1f} MiB")
        (none_s, none_kib), (full_s, full_kib) = boot_s(empty), boot_s(full)
        row("boot with no machine", seconds(none_s))
        row(f"boot with {count:,}", seconds(full_s), "under 2 s")
        row("memory a record, after boot", f"{(full_kib - none_kib) / count:.2f} KiB", "under 50 KiB")
        with kept_node(full, *_FLAGS) as node:
            row(f"processor, {count:,} idle", f"{idle_percent(node, idle_s):.2f}%", "under 1%")
            for samples in lists(node, count):
                row(
                    f"list: {samples.name}, p50 / p99",
                    f"{samples.median:.1f} / {samples.p99:.1f} ms",
                    "p99 under 50 ms",
                )
            row(
                "memory a record, after lists",
                f"{(usage(node.pid).rss_kib - none_kib) / count:.2f} KiB",
                "under 50 KiB",
            )
        with kept_node(busy, *_FLAGS) as node:
            make(node, running, "started")
        with kept_node(busy, *_FLAGS, "--ephemeral") as node:  # taken up again, and ended with the node
            used = idle_percent(node, idle_s)
            row(f"memory a running machine ({running})", f"{(usage(node.pid).rss_kib - none_kib) / running:.0f} KiB")
            row(f"processor, {running} running", f"{used:.2f}%", "under 1%")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--machines", type=int, default=5000)
    parser.add_argument("--running", type=int, default=50)
    parser.add_argument("--idle-s", type=float, default=70.0, help="longer than the minute between two comparisons")
    given = parser.parse_args()
    main(given.machines, given.running, given.idle_s)
