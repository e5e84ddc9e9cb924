"""Runs five-step runs on Hawker's engine for a while and prints how long each took, as JSON, for `bench/engine.py`.

    python bench/engine_hawker.py DIRECTORY AT_ONCE SECONDS

What it guarantees: accepting a run is one durable commit (fsync) before the caller hears of it; each step's end and its
result are one commit, in order, on disk no later than the next durable one. After a crash a run resumes at the first
step whose end is not on disk, and steps are idempotent. Runs that commit at the same moment share an fsync.
"""

import sys
import time
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
WARM_UP_S = 0.3
DEADLINE_S = 60.0


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """About as large as a real flow's input."""

    instance_id: str = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    launch: bool = True


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What each step records."""

    instance_id: str
    pid: int


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What each contender prints."""

    seconds: float
    latency_ms: list[float]


async def hold(context: StepContext[None, Order]) -> Outcome:
    """A step that has nothing to do: what is measured is the engine."""
    return Done(Result(instance_id=context.input.instance_id, pid=4242))


FLOW = Flow("five", Order, tuple(Step(name, hold) for name in STEPS))


async def measure(directory: Path, at_once: int, seconds: float) -> Measured:
    store = SqliteStore(directory / "store.db")
    runner: Runner[None] = Runner(store, [FLOW], None, SystemClock())
    async with anyio.create_task_group() as group:
        await group.start(runner.serve)
        await callers(store, runner, at_once, WARM_UP_S)
        found = await callers(store, runner, at_once, seconds)
        group.cancel_scope.cancel()
    await store.close()
    return found


async def callers(store: SqliteStore, runner: Runner[None], at_once: int, seconds: float) -> Measured:
    latency_ms: list[float] = []
    began = time.perf_counter()
    async with anyio.create_task_group() as group:
        for number in range(at_once):
            group.start_soon(call, store, runner, number, began + seconds, latency_ms)
    return Measured(seconds=time.perf_counter() - began, latency_ms=latency_ms)


async def call(store: SqliteStore, runner: Runner[None], number: int, until: float, latency_ms: list[float]) -> None:
    """One caller: a run on a machine of its own, and when it has ended, the next."""

    def accept(tx: Tx) -> RunId:
        return runner.accept(tx, FLOW, Resource(kind="machine", id=f"{number:014x}"), Order())

    while (began := time.perf_counter()) < until:
        await runner.wait(await store.write(accept), DEADLINE_S)
        latency_ms.append((time.perf_counter() - began) * 1000)


def main(directory: str, at_once: str, seconds: str) -> None:
    options = {"use_uvloop": True}  # as the daemon does
    found = anyio.run(measure, Path(directory), int(at_once), float(seconds), backend_options=options)
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
