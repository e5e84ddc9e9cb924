"""Two versions of hawker side by side: nodes of both run at once, and each thing is measured on one and then on the
other, in turns. Prints the table of docs/benchmarks.md.

    python bench/versions.py OLD/bin/hawker NEW/bin/hawker [rounds]
"""

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from bench_node import BenchNode, kept_node, rest, timed_ms
from figures import Samples

_WARM_UP, _AT_ONCE, _ORDERS, _MACHINES = 3, (4, 8), 40, 20
_FLAGS = ("--ephemeral", "--driver", "container", "--memory-mib", "65536", "--shared-cpu-ratio", "64")


def main(programs: list[str], rounds: int) -> None:
    with ExitStack() as stack:
        nodes = [_node(stack, program) for program in programs]
        start, create = _starts(nodes, rounds), _creates(nodes, rounds)
        orders = {at_once: _orders(nodes, rounds, at_once) for at_once in _AT_ONCE}
        memory = [_memory_kib(node) for node in nodes]
    print("| What | before | after | ratio |\n|---|---:|---:|---:|")
    for name, (old, new) in (("start", start), ("create", create)):
        print(f"| {name} at rest, p50 ms | {old.median:.1f} | {new.median:.1f} | {new.median / old.median:.2f}x |")
        print(f"| {name} at rest, p99 ms | {old.p99:.1f} | {new.p99:.1f} | {new.p99 / old.p99:.2f}x |")
    for name, (before, after) in (
        *((f"orders a second, {at_once} at once", found) for at_once, found in orders.items()),
        ("memory of a machine, KiB", memory),
    ):
        print(f"| {name} | {before:.0f} | {after:.0f} | {after / before:.2f}x |")


def _node(stack: ExitStack, program: str) -> BenchNode:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hawker-bench-")))
    node = stack.enter_context(kept_node(directory, *_FLAGS, program=(program,)))
    node.make_app()
    return node


def _starts(nodes: list[BenchNode], rounds: int) -> list[Samples]:
    machines = [node.create() for node in nodes]
    found: list[list[float]] = [[] for _ in nodes]
    for turn in range(rounds + _WARM_UP):
        for node, machine, ms in zip(nodes, machines, found, strict=True):
            node.wait(machine, "started")
            node.act(machine, "stop")
            node.wait(machine, "stopped")
            rest()
            took = timed_ms(_start, node, machine)
            if turn >= _WARM_UP:
                ms.append(took)
    for node, machine in zip(nodes, machines, strict=True):
        node.destroy(machine)
    return [Samples("start", ms) for ms in found]


def _start(node: BenchNode, machine: str) -> None:
    node.act(machine, "start")
    node.wait(machine, "started")


def _creates(nodes: list[BenchNode], rounds: int) -> list[Samples]:
    found: list[list[float]] = [[] for _ in nodes]
    for turn in range(rounds + _WARM_UP):
        for node, ms in zip(nodes, found, strict=True):
            rest()
            began = perf_counter()
            machine = _create(node)
            took = (perf_counter() - began) * 1000
            node.destroy(machine)
            if turn >= _WARM_UP:
                ms.append(took)
    return [Samples("create", ms) for ms in found]


def _create(node: BenchNode) -> str:
    machine = node.create()
    node.wait(machine, "started")
    return machine


def _orders(nodes: list[BenchNode], rounds: int, at_once: int) -> list[float]:
    """Machines that are made and destroyed, in turns of `_ORDERS`."""
    rates: list[list[float]] = [[] for _ in nodes]
    with ThreadPoolExecutor(at_once) as pool:
        clients = [[node.again() for _ in range(at_once)] for node in nodes]
        for _ in range(max(3, rounds // 10)):
            for own, found in zip(clients, rates, strict=True):
                began = perf_counter()
                list(pool.map(partial(_order, at_once=at_once), own))
                found.append(_ORDERS / (perf_counter() - began))
    return [median(each) for each in rates]


def _order(client: BenchNode, at_once: int) -> None:
    for _ in range(_ORDERS // at_once):
        client.destroy(_create(client))


def _memory_kib(node: BenchNode) -> float:
    """What each of many more machines takes: of its own processes, and what the daemon has grown by."""
    before = _proportional_kib(Path(f"/proc/{node.pid}"))
    machines = [_create(node) for _ in range(_MACHINES)]
    grown = _proportional_kib(Path(f"/proc/{node.pid}")) - before
    theirs = sum(_proportional_kib(process) for process in Path("/proc").iterdir() if _is_of(process, machines))
    return (grown + theirs) / _MACHINES


def _is_of(process: Path, machines: list[str]) -> bool:
    """By the names of its control groups."""
    if not process.name.isdecimal():
        return False
    try:
        groups = (process / "cgroup").read_text()
    except OSError:  # it has ended
        return False
    return any(machine in groups for machine in machines)


def _proportional_kib(process: Path) -> int:
    """Memory that several processes share counts once; none of a process that has ended."""
    with suppress(OSError):
        found = (process / "smaps_rollup").read_text().partition("\nPss:")[2].split()
        return int(found[0]) if found else 0
    return 0


if __name__ == "__main__":
    given = sys.argv[1:]
    if len(given) < 2 or not all(os.access(program, os.X_OK) for program in given[:2]):
        sys.exit(__doc__)
    main(given[:2], int(given[2]) if len(given) > 2 else 40)
