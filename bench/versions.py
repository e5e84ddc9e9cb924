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

_WARM_UP, _AT_ONCE, _ORDERS, _MACHINES = 3, 4, 40, 20
_FLAGS = ("--ephemeral", "--driver", "container", "--memory-mib", "65536", "--shared-cpu-ratio", "64")


def main(programs: list[str], rounds: int) -> None:
    with ExitStack() as stack:
        nodes = [_node(stack, program) for program in programs]
        start, create = _starts(nodes, rounds), _creates(nodes, rounds)
        orders, memory = _orders(nodes, rounds), [_memory_kib(node) for node in nodes]
    print("| What | before | after | ratio |\n|---|---:|---:|---:|")
    for name, (old, new) in (("start", start), ("create", create)):
        print(f"| {name} at rest, p50 ms | {old.median:.1f} | {new.median:.1f} | {new.median / old.median:.2f}x |")
        print(f"| {name} at rest, p99 ms | {old.p99:.1f} | {new.p99:.1f} | {new.p99 / old.p99:.2f}x |")
    for name, (before, after) in (
        (f"orders a second, {_AT_ONCE} at once", orders),
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


def _orders(nodes: list[BenchNode], rounds: int) -> list[float]:
    """Machines that are made and destroyed, in turns of `_ORDERS`."""
    rates: list[list[float]] = [[] for _ in nodes]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        clients = [[node.again() for _ in range(_AT_ONCE)] for node in nodes]
        for _ in range(max(3, rounds // 10)):
            for own, found in zip(clients, rates, strict=True):
                began = perf_counter()
                list(pool.map(partial(_order, own), range(_AT_ONCE)))
                found.append(_ORDERS / (perf_counter() - began))
    return [median(each) for each in rates]


def _order(clients: list[BenchNode], number: int) -> None:
    client = clients[number]
    for _ in range(_ORDERS // _AT_ONCE):
        client.destroy(_create(client))


def _memory_kib(node: BenchNode) -> float:
    """What each of many more machines takes, of the daemon and of what it starts: the host's processes are all looked
    at, so nothing else may begin or grow meanwhile."""
    before = _proportional_kib()
    for _ in range(_MACHINES):
        _create(node)
    return (_proportional_kib() - before) / _MACHINES


def _proportional_kib() -> int:
    """Of all processes; memory that several share counts once."""
    total = 0
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with suppress(OSError):  # it has ended
                found = (process / "smaps_rollup").read_text().partition("\nPss:")[2].split()
                total += int(found[0]) if found else 0
    return total


if __name__ == "__main__":
    given = sys.argv[1:]
    if len(given) < 2 or not all(os.access(program, os.X_OK) for program in given[:2]):
        sys.exit(__doc__)
    main(given[:2], int(given[2]) if len(given) > 2 else 40)
