"""Every operation from every resting state, and long walks of them, by the real flows: what the table of
`hawker.machine` says is what happens, and every history is a legal path."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hawker.api.contract.exec import EXEC_MACHINE, ExecRequest
from hawker.api.contract.machine import SignalRequest
from hawker.api.contract.machine_operation import SIGNAL_MACHINE
from hawker.clock import ManualClock
from hawker.errors import HawkerError
from hawker.ids import MachineId
from hawker.machine import Operation, State, judge
from hawker.proof.legal_path import illegal_steps
from hawker.runtime.fake_host import FakeFault
from hawker.sim.harness.plan import Chance
from hawker.sim.node.sim_worker import SimWorker, params
from hawker.sim.node.world import MemoryWorld
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio
GROWING = {"memory_mb": 256, "max_memory_mb": 512}
CONFIG: dict[str, Any] = {"guest": GROWING, "restart": {"policy": "no"}}
STEPS = 60


async def signal(worker: SimWorker, machine_id: str) -> None:
    """Such an end is the client's doing, and no order to end it."""
    await worker.api.call(SIGNAL_MACHINE, params=params(machine_id), body=SignalRequest(signal="TERM"))
    worker.host.felled.clear()


async def execute(worker: SimWorker, machine_id: str) -> None:
    await worker.api.call(EXEC_MACHINE, params=params(machine_id), body=ExecRequest(command=("true",)))


async def start(worker: SimWorker, machine_id: str) -> None:
    await worker.start(machine_id)


async def set_memory(worker: SimWorker, machine_id: str) -> None:
    await worker.set_memory(machine_id, 300)


async def suspend(worker: SimWorker, machine_id: str) -> None:
    await worker.suspend(machine_id)


async def update(worker: SimWorker, machine_id: str) -> None:
    await worker.update(machine_id, **CONFIG)


CALLS: Mapping[Operation, Callable[[SimWorker, str], Awaitable[None]]] = {
    Operation.START: start,
    Operation.STOP: lambda worker, machine_id: worker.stop(machine_id),
    Operation.SUSPEND: suspend,
    Operation.RESTART: lambda worker, machine_id: worker.restart(machine_id),
    Operation.UPDATE: update,
    Operation.DESTROY: lambda worker, machine_id: worker.destroy(machine_id),
    Operation.SIGNAL: signal,
    Operation.EXEC: execute,
    Operation.MEMORY: set_memory,
}

LEADS_TO: Mapping[Operation, State | None] = {
    Operation.START: State.STARTED,
    Operation.STOP: State.STOPPED,
    Operation.SUSPEND: State.SUSPENDED,
    Operation.RESTART: State.STARTED,
    Operation.UPDATE: State.STARTED,
    Operation.DESTROY: State.DESTROYED,
    Operation.SIGNAL: State.STOPPED,  # the workload does not expect it, and its policy is not to start again
    Operation.EXEC: None,
    Operation.MEMORY: None,
}
"""Where a machine rests after an operation that was done; None leaves it where it is."""

RESTING = (State.STARTED, State.STOPPED, State.SUSPENDED, State.FAILED, State.DESTROYED)


def after(operation: Operation, state: State) -> State:
    """A machine that failed is off, and stopping what is off changes nothing."""
    if operation is Operation.STOP and state is State.FAILED:
        return State.FAILED
    return LEADS_TO[operation] or state


async def is_taken(worker: SimWorker, operation: Operation, machine_id: str) -> bool:
    try:
        await CALLS[operation](worker, machine_id)
    except HawkerError as error:
        assert error.status in (404, 409, 412), error
        return False
    return True


def is_legal(operation: Operation, state: State) -> bool:
    """Nothing can be done with a machine that is gone, where the API says 404 before the table is asked."""
    if state is State.DESTROYED:
        return False
    try:
        judge(operation, state)
    except HawkerError:
        return False
    return True


async def bring(worker: SimWorker, stall: MemoryWorld, state: State) -> str:
    """A machine at rest in this state."""
    machine_id = await worker.started(**CONFIG)
    match state:
        case State.STOPPED:
            await worker.stop(machine_id)
        case State.SUSPENDED:
            await worker.suspend(machine_id)
        case State.FAILED:
            stall.host.script("start", *[FakeFault(error=OSError("spoilt"))] * 3)
            await worker.restart(machine_id)
        case State.DESTROYED:
            await worker.destroy(machine_id, force=True)
        case _:
            assert state is State.STARTED
    await worker.reaches(machine_id, state)
    return machine_id


def check_path(worker: SimWorker, stall: MemoryWorld, machine_id: str) -> None:
    events = worker.parts.deps.table.events(worker.store, MachineId(machine_id), 1000)
    assert list(illegal_steps(events[::-1], whole=len(events) < 200)) == []
    check_at_rest(stall)


@pytest.mark.parametrize("state", RESTING)
@pytest.mark.parametrize("operation", Operation)
async def test_an_operation_does_what_the_table_says(
    worker: SimWorker, stall: MemoryWorld, operation: Operation, state: State
) -> None:
    machine_id = await bring(worker, stall, state)
    taken = await is_taken(worker, operation, machine_id)
    assert taken is is_legal(operation, state)
    await worker.reaches(machine_id, after(operation, state) if taken else state)
    check_path(worker, stall, machine_id)


@pytest.mark.parametrize("seed", range(6))
async def test_a_long_walk_is_a_legal_path(seed: int, tmp_path: Path) -> None:
    """With a daemon that is replaced now and then."""
    chance, stall = Chance(ManualClock(seed=seed)), MemoryWorld(tmp_path)
    machine_id, state, left = "", State.STARTED, STEPS
    while left > 0:
        async with stall.open() as worker:
            await worker.app()
            machine_id = machine_id or await worker.started(**CONFIG)
            for _ in range(chance.between(1, 12)):
                operation = chance.one_of([each for each in Operation if each is not Operation.DESTROY])
                taken = await is_taken(worker, operation, machine_id)
                assert taken is is_legal(operation, state), (operation, state)
                state = after(operation, state) if taken else state
                await worker.reaches(machine_id, state)
                left -= 1
            check_path(worker, stall, machine_id)
        stall.crash()
