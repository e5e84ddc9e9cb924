"""Random operations in random order, and ends of workloads between them: the books balance after each, nothing is ever
sold twice, and what is refused changes nothing."""

from collections.abc import Coroutine
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hawker.errors import HawkerError
from hawker.node import Resources, shortfall
from hawker.sim.harness.loop import VirtualTimeLoop
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from tests.worker.invariants import check_at_rest, check_store

LEGAL = {
    "launch/created": {"start/started", "stop/stopping", "destroy/destroying", "stop/stopped", "exit/stopped"},
    "destroy/destroying": {"exit/stopped", "destroy/destroyed"},
    "destroy/destroyed": set(),
    "stop/stopping": {"exit/stopped", "stop/stopped", "destroy/destroying"},
}
"""What may follow; every other event may be followed by any but the first."""

sizes = st.sampled_from([(1, 256), (2, 512), (3, 768)])
pick = st.integers(0, 5)
actions = st.one_of(
    st.tuples(st.just("create"), sizes, st.booleans()),
    st.tuples(st.just("update"), pick, sizes, st.booleans()),
    st.tuples(st.sampled_from(["start", "stop", "restart", "destroy", "kill"]), pick),
    st.tuples(st.just("end"), pick, st.integers(0, 2)),
    st.tuples(st.just("pause"), st.sampled_from([0.0, 0.001, 0.2, 2.0, 60.0])),
)


@settings(suppress_health_check=list(HealthCheck))
@given(plan=st.lists(actions, min_size=3, max_size=25))
def test_the_books_balance_whatever_is_asked(plan: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as directory:
        anyio.run(_play, plan, Path(directory), backend_options={"loop_factory": VirtualTimeLoop})


async def _play(plan: list[tuple[Any, ...]], directory: Path) -> None:
    stall = MemoryWorld(directory)
    async with stall.open() as worker:
        await worker.app()
        ids: list[str] = []
        for action in plan:
            await _act(worker, stall, ids, *action)
            check_store(worker.store)
            _never_oversold(worker, stall)
        await worker.at_rest()
        await stall.clock.sleep(120)
        await worker.at_rest()
        check_at_rest(stall)
        for machine_id in ids:
            _check_history(worker.events(machine_id))


async def _act(worker: SimWorker, stall: MemoryWorld, ids: list[str], verb: str, *details: Any) -> None:
    if verb == "pause":
        await stall.clock.sleep(details[0])
    elif verb == "create":
        (cpus, memory_mb), skip = details
        guest = {"cpu_kind": "shared", "cpus": cpus, "memory_mb": memory_mb}
        await _asked(worker, ids, worker.create(guest=guest, order={"skip_launch": skip}))
    elif ids:
        await _change(worker, stall, ids[details[0] % len(ids)], verb, *details[1:])


async def _change(worker: SimWorker, stall: MemoryWorld, machine_id: str, verb: str, *details: Any) -> None:
    match verb:
        case "end":
            stall.host.end(worker.record(machine_id).id, details[0])
        case "update":
            (cpus, memory_mb), skip = details
            guest = {"cpu_kind": "shared", "cpus": cpus, "memory_mb": memory_mb}
            await _asked(worker, [], worker.update(machine_id, guest=guest, order={"skip_launch": skip}))
        case "kill":
            await _asked(worker, [], worker.destroy(machine_id, force=True))
        case _:
            await _asked(worker, [], getattr(worker, verb)(machine_id))


async def _asked(worker: SimWorker, ids: list[str], call: Coroutine[Any, Any, Any]) -> None:
    try:
        answer = await call
    except HawkerError as refusal:
        assert refusal.status in (404, 409, 412, 422), refusal
        return
    if hasattr(answer, "id"):
        ids.append(answer.id)


def _never_oversold(worker: SimWorker, stall: MemoryWorld) -> None:
    used = worker.parts.deps.table.used(worker.store)
    assert shortfall(stall.room, Resources(), used) == {}


def _check_history(events: list[str]) -> None:
    assert events[0] == "launch/created"
    for earlier, later in pairwise(events):
        assert later in LEGAL.get(earlier, {later}) and later != "launch/created", f"{later} after {earlier}: {events}"
