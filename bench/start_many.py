"""How many stopped container machines start in a second, 8 at once, beside bare `crun run`, and how much of a processor
the daemon needs for each. Interleaved in one run, warm; prints the table of docs/benchmarks.md.

    python bench/start_many.py [rounds]
"""

import os
import statistics
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter

from bench_node import BenchNode, bench_node
from quiet_host import quiet_host
from start import BareCrun

_AT_ONCE, _WARM_UP = 8, 1
_TICKS = os.sysconf("SC_CLK_TCK")


def _all_at_once(pool: ThreadPoolExecutor, works: Sequence[Callable[[], object]]) -> float:
    """Seconds until all have ended."""
    began = perf_counter()
    for done in [pool.submit(work) for work in works]:
        done.result()
    return perf_counter() - began


def _cpu_s(pid: int) -> tuple[float, float]:
    """Its own, and the kernel's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / _TICKS, int(fields[12]) / _TICKS


def _start(node: BenchNode, machine: str) -> None:
    node.act(machine, "start")
    node.wait(machine, "started")


def _stop(node: BenchNode, machine: str) -> None:
    node.act(machine, "stop")
    node.wait(machine, "stopped")


def main(rounds: int) -> None:
    with ExitStack() as stack:
        node = stack.enter_context(bench_node("--driver", "container"))
        pool = stack.enter_context(ThreadPoolExecutor(_AT_ONCE))
        clients = [node.again() for _ in range(_AT_ONCE)]
        machines = [node.create() for _ in range(_AT_ONCE)]
        for machine in machines:
            node.wait(machine, "started")
        hosts = [stack.enter_context(quiet_host()) for _ in range(_AT_ONCE)]
        bare = [
            BareCrun(host, node.data_dir / "machines" / machine, name=machine)
            for host, machine in zip(hosts, machines, strict=True)
        ]
        pairs = list(zip(clients, machines, strict=True))
        ours, theirs, own_cpu, kernel_cpu = [], [], 0.0, 0.0
        for number in range(rounds + _WARM_UP):
            _all_at_once(
                pool, [lambda client=client, machine=machine: _stop(client, machine) for client, machine in pairs]
            )
            own_before, kernel_before = _cpu_s(node.pid)
            ours.append(_all_at_once(pool, [partial(_start, client, machine) for client, machine in pairs]))
            if number >= _WARM_UP:
                own, kernel = _cpu_s(node.pid)
                own_cpu, kernel_cpu = own_cpu + own - own_before, kernel_cpu + kernel - kernel_before
            theirs.append(_all_at_once(pool, [each.start for each in bare]))
            _all_at_once(pool, [each.remove for each in bare])
        for each in bare:
            each.close()
    rate, crun_rate = (_AT_ONCE / statistics.median(found[_WARM_UP:]) for found in (ours, theirs))
    own_ms, kernel_ms = (1000 * spent / _AT_ONCE / rounds for spent in (own_cpu, kernel_cpu))
    title = f"What, {_AT_ONCE} at once, {rounds} rounds"
    print(f"| {title} | a second | against bare crun | daemon's cpu, ms a start: its own | the kernel's for it |")
    print("|---|---:|---:|---:|---:|")
    print(f"| hawker | {rate:.0f} | {rate / crun_rate:.2f}x | {own_ms:.1f} | {kernel_ms:.1f} |")
    print(f"| bare `crun run` | {crun_rate:.0f} | 1.00x | | |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
