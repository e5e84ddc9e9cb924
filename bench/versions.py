"""Two versions of hawker side by side: nodes of both run at once, and each thing is measured on one and then on the
other, in turns. Prints the table of docs/benchmarks.md; its status is 1 where the second is worse by more than 5%.

    python bench/versions.py OLD NEW [rounds]

Each is a wheel, a checkout with its `.venv`, or a program. A wheel is run with the dependencies of this Python.
"""

import os
import subprocess
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
_WITHIN = 1.05
Program = tuple[str, ...]
_FLAGS = ("--ephemeral", "--driver", "container", "--memory-mib", "65536", "--shared-cpu-ratio", "64")


def main(versions: list[Path], rounds: int) -> bool:
    """Whether the second is as good as the first."""
    with ExitStack() as stack:
        programs = [_program(stack, version) for version in versions]
        nodes = [_node(stack, program) for program in programs]
        start, create = _starts(nodes, rounds), _creates(nodes, rounds)
        listed = _lists(nodes, programs, rounds)
        orders = {at_once: _orders(nodes, rounds, at_once) for at_once in _AT_ONCE}
        memory = [_memory_kib(node) for node in nodes]
    print("| What | before | after | ratio |\n|---|---:|---:|---:|")
    good = []
    for name, (old, new) in (("start", start), ("create", create), ("`machine list`", listed)):
        good.append(_row(f"{name} at rest, p50 ms", old.median, new.median))
        _row(f"{name} at rest, p99 ms", old.p99, new.p99)
    for at_once, (before, after) in orders.items():
        good.append(_row(f"orders a second, {at_once} at once", before, after, more_is_better=True))
    good.append(_row("memory of a machine, KiB", *memory))
    return all(good)


def _row(name: str, before: float, after: float, *, more_is_better: bool = False) -> bool:
    ratio = after / before
    good = (1 / ratio if more_is_better else ratio) <= _WITHIN
    print(f"| {name} | {before:.1f} | {after:.1f} | {ratio:.2f}x{'' if good else ' !'} |")
    return good


def _program(stack: ExitStack, version: Path) -> Program:
    if version.suffix == ".whl":
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="hawker-bench-"))
        install = ("install", "--quiet", "--no-deps", "--no-compile", "--target", place, str(version))
        subprocess.run((sys.executable, "-m", "pip", *install), check=True)
        subprocess.run((sys.executable, "-m", "compileall", "-q", place), check=True)
        return "env", f"PYTHONPATH={place}", f"{place}/bin/hawker"
    return (str(version / ".venv/bin/hawker" if version.is_dir() else version),)


def _node(stack: ExitStack, program: Program) -> BenchNode:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hawker-bench-")))
    node = stack.enter_context(kept_node(directory, *_FLAGS, program=program))
    node.make_app()
    return node


def _lists(nodes: list[BenchNode], programs: list[Program], rounds: int) -> list[Samples]:
    found: list[list[float]] = [[] for _ in nodes]
    for turn in range(rounds + _WARM_UP):
        for node, program, ms in zip(nodes, programs, found, strict=True):
            rest()
            took = timed_ms(_list, node, program)
            if turn >= _WARM_UP:
                ms.append(took)
    return [Samples("list", ms) for ms in found]


def _list(node: BenchNode, program: Program) -> None:
    environment = os.environ | {"HAWKER_DATA_DIR": str(node.data_dir)}
    subprocess.run((*program, "machine", "list"), env=environment, check=True, stdout=subprocess.DEVNULL)


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
    if len(given) < 2 or not all(Path(version).exists() for version in given[:2]):
        sys.exit(__doc__)
    sys.exit(not main([Path(version) for version in given[:2]], int(given[2]) if len(given) > 2 else 40))
