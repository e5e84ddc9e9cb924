"""Durable steps per second: five-step runs, each accepted with an fsync, at 1, 8 and 64 at once, on disk and in memory.

Run as `python bench/engine.py [DIRECTORY ...]`; without one, the working directory's disk and /dev/shm. Latency is from
the order to the end of the run as its caller sees it. `fsync` is the directory's own, for comparison.
"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import msgspec

from hawker.clock import SystemClock
from hawker.fsm.contract import Done, Flow, Outcome, Resource, Step, StepContext
from hawker.fsm.runner import Runner
from hawker.ids import RunId
from hawker.store.contract import Tx
from hawker.store.sqlite import SqliteStore

STEPS = ("image", "rootfs", "network", "launch", "check")
AT_ONCE = (1, 8, 64)
SECONDS = 3.0
DEADLINE_S = 60.0


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """About as large as a real flow's input."""

    instance_id: str = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    launch: bool = True


async def hold(context: StepContext[None, Input]) -> Outcome:
    """A step that has nothing to do: what is measured is the engine."""
    return Done(context.attempt)


FLOW = Flow("five", Input, tuple(Step(name, hold) for name in STEPS))


@dataclass(frozen=True, slots=True)
class Figures:
    steps_per_s: float
    p50_ms: float
    p99_ms: float


@contextmanager
def scratch(directory: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hawker-bench-", dir=directory))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def fsync_us(folder: Path) -> float:
    """The median of appending 4 KiB and syncing it."""
    taken = []
    with (folder / "probe").open("wb", buffering=0) as file:
        for _ in range(200):
            began = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e6


async def measure(folder: Path, at_once: int) -> Figures:
    store = SqliteStore(folder / f"store-{at_once}.db")
    runner: Runner[None] = Runner(store, [FLOW], None, SystemClock())
    latencies: list[float] = []
    async with anyio.create_task_group() as group:
        await group.start(runner.serve)
        began = time.perf_counter()
        async with anyio.create_task_group() as callers:
            for number in range(at_once):
                callers.start_soon(call, store, runner, number, began + SECONDS, latencies)
        taken = time.perf_counter() - began
        group.cancel_scope.cancel()
    await store.close()
    ordered = sorted(latencies)
    p50, p99 = (ordered[int(len(ordered) * part)] * 1e3 for part in (0.50, 0.99))
    return Figures(len(ordered) * len(STEPS) / taken, p50, p99)


async def call(store: SqliteStore, runner: Runner[None], number: int, until: float, latencies: list[float]) -> None:
    """One caller: a run on a machine of its own, and when it has ended, the next."""

    def accept(tx: Tx) -> RunId:
        return runner.accept(tx, FLOW, Resource(kind="machine", id=f"{number:014x}"), Input())

    while (began := time.perf_counter()) < until:
        await runner.wait(await store.write(accept), DEADLINE_S)
        latencies.append(time.perf_counter() - began)


async def main(directories: list[Path]) -> None:
    print(f"{'directory':20} {'fsync us':>9} {'at once':>8} {'steps/s':>9} {'p50 ms':>8} {'p99 ms':>8}")
    for directory in directories:
        with scratch(directory) as folder:
            probe_us = fsync_us(folder)
            for at_once in AT_ONCE:
                found = await measure(folder, at_once)
                row = f"{at_once:8} {found.steps_per_s:9.0f} {found.p50_ms:8.2f} {found.p99_ms:8.2f}"
                print(f"{directory!s:20} {probe_us:9.0f} {row}")


if __name__ == "__main__":
    chosen = [Path(argument) for argument in sys.argv[1:]] or [Path("."), Path("/dev/shm")]
    anyio.run(main, chosen, backend_options={"use_uvloop": True})
