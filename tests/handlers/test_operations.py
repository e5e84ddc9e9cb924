from collections.abc import Awaitable, Callable

import anyio
import pytest

from hawker.api.contract.machine import SignalRequest, StopRequest
from hawker.api.contract.machine_operation import (
    CREATE_LEASE,
    GET_LEASE,
    GET_MEMORY,
    RECLAIM_MEMORY,
    RELEASE_LEASE,
    RESTART_MACHINE,
    SET_MEMORY,
    SIGNAL_MACHINE,
    STOP_MACHINE,
    LeaseAnswer,
    LeaseQuery,
    LeaseRequest,
    ReclaimRequest,
    RestartQuery,
    SetMemoryRequest,
)
from hawker.errors import BadRequest, Conflict, DeadlineExceeded, LeaseHeld, NotFound, WrongState
from hawker.ids import MachineId
from hawker.machine import State
from hawker.sim.node.sim_worker import SimWorker, params
from hawker.sim.node.world import MemoryWorld
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


async def test_wait_returns_the_state_the_version_and_the_event(worker: SimWorker) -> None:
    machine = await worker.create()
    assert await worker.wait(machine.id) is State.STARTED, "started is the default"
    assert await worker.wait(machine.id, "stopped", "settled") is State.STARTED


async def test_wait_is_woken_by_the_change(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    seen: list[State] = []

    async def wait() -> None:
        seen.append(await worker.wait(machine_id, "stopped", "destroyed"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await stall.clock.sleep(30)
        assert seen == []
        await worker.stop(machine_id)
    assert seen == [State.STOPPED]


async def test_a_wait_that_is_over_names_both_states(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    before = stall.clock.now()
    text = "deadline_exceeded: machine failed to reach desired state, stopped, currently started"
    with pytest.raises(DeadlineExceeded, match=text):
        await worker.wait(machine_id, "stopped", timeout=7)
    assert stall.clock.now() - before == pytest.approx(7)


@pytest.mark.parametrize("timeout", [0.0, 0.5, 61.0, -1.0])
async def test_a_wait_lasts_one_to_sixty_seconds(worker: SimWorker, timeout: float) -> None:
    machine_id = await worker.stopped()
    with pytest.raises(BadRequest, match=r"invalid WaitMachineRequest\.Timeout: value must be inside range"):
        await worker.wait(machine_id, timeout=timeout)


async def test_waiting_for_a_version_that_was_replaced_is_a_conflict(worker: SimWorker) -> None:
    machine_id = await worker.started()
    first = worker.record(machine_id).version
    updated = await worker.update(machine_id, env={"A": "1"})
    with pytest.raises(Conflict, match="was replaced by"):
        await worker.wait(machine_id, "started", version=first)
    assert await worker.wait(machine_id, "started", instance_id=updated.version) is State.STARTED


async def test_a_machine_that_is_gone_ends_every_wait(worker: SimWorker) -> None:
    machine_id = await worker.started()
    await worker.destroy(machine_id, force=True)
    assert await worker.wait(machine_id, "destroyed") is State.DESTROYED
    with pytest.raises(NotFound, match="machine not found"):
        await worker.wait(machine_id, "started")
    with pytest.raises(NotFound, match="machine not found"):
        await worker.wait("nosuchmachine", "destroyed")


async def test_a_stop_between_two_calls_is_not_missed(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(restart={"policy": "no"})
    event = worker.record(machine_id).last_event
    stall.host.end(MachineId(machine_id), 0)
    await worker.reaches(machine_id, State.STOPPED)
    await worker.start(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    assert await worker.wait(machine_id, "stopped", from_event_id=event) is State.STOPPED
    with pytest.raises(DeadlineExceeded):
        await worker.wait(machine_id, "stopped", from_event_id=worker.record(machine_id).last_event, timeout=1)


async def test_a_restart_and_an_update_between_two_calls_are_no_stops(worker: SimWorker) -> None:
    machine_id = await worker.started()
    event = worker.record(machine_id).last_event
    await worker.restart(machine_id)
    with pytest.raises(DeadlineExceeded):
        await worker.wait(machine_id, "stopped", from_event_id=event, timeout=5)
    await worker.update(machine_id, env={"A": "1"})
    with pytest.raises(DeadlineExceeded):
        await worker.wait(machine_id, "stopped", from_event_id=event, timeout=5)
    await worker.update(machine_id, env={"A": "2"}, order={"skip_launch": True})
    assert await worker.wait(machine_id, "stopped", from_event_id=event) is State.STOPPED
    assert worker.record(machine_id).state is State.STOPPED


async def test_signals_by_name_and_number_reach_the_workload(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    stall.host.stubborn.add(MachineId(machine_id))
    for signal in ("HUP", "SIGUSR1", 12):
        await worker.api.call(SIGNAL_MACHINE, params=params(machine_id), body=SignalRequest(signal=signal))
    assert stall.host.signals(MachineId(machine_id)) == [1, 10, 12]
    with pytest.raises(BadRequest, match="signal"):
        await worker.api.call(SIGNAL_MACHINE, params=params(machine_id), body=SignalRequest(signal="NOPE"))


async def test_a_machine_that_is_off_takes_no_signal(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    with pytest.raises(WrongState, match="unable to signal machine from current state: 'stopped'"):
        await worker.api.call(SIGNAL_MACHINE, params=params(machine_id), body=SignalRequest(signal=9))


@pytest.mark.parametrize("timeout", ["-1s", "1h", "soon", -5])
async def test_a_timeout_that_makes_no_sense_is_refused(worker: SimWorker, timeout: str | int) -> None:
    machine_id = await worker.started()
    with pytest.raises(BadRequest, match="timeout"):
        await worker.api.call(STOP_MACHINE, params=params(machine_id), body=StopRequest(timeout=timeout))
    assert worker.record(machine_id).state is State.STARTED


async def test_a_timeout_in_nanoseconds_is_understood(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    stall.host.stubborn.add(MachineId(machine_id))
    before = stall.clock.now()
    await worker.stop(machine_id, timeout=2_000_000_000)
    await worker.reaches(machine_id, State.STOPPED)
    assert 2 <= stall.clock.now() - before < 3


async def test_a_second_stop_can_end_a_slow_one(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    stall.host.stubborn.add(MachineId(machine_id))
    before = stall.clock.now()
    await worker.stop(machine_id, timeout="5m")
    await eventually(lambda: stall.host.signals(MachineId(machine_id)))
    await worker.stop(machine_id)
    assert worker.record(machine_id).state is State.STOPPING
    await worker.stop(machine_id, signal="SIGKILL")
    await worker.reaches(machine_id, State.STOPPED)
    assert stall.clock.now() - before < 5
    await worker.stop(machine_id, signal="SIGKILL")


async def test_a_restart_can_skip_the_signal(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    stall.host.stubborn.add(MachineId(machine_id))
    first = stall.host.look(MachineId(machine_id))
    query = RestartQuery(force_stop=True)
    await worker.api.call(RESTART_MACHINE, params=params(machine_id), query=query)
    await worker.reaches(machine_id, State.STARTED)
    assert first is not None and first.signals == [9]


@pytest.mark.parametrize("call", [SimWorker.start, SimWorker.stop, SimWorker.restart], ids=["start", "stop", "restart"])
async def test_a_missing_machine_is_not_found(
    worker: SimWorker, call: Callable[[SimWorker, str], Awaitable[object]]
) -> None:
    with pytest.raises(NotFound, match="machine not found"):
        await call(worker, "00000000000000")


async def _take(worker: SimWorker, machine_id: str, nonce: str | None = None, **body: object) -> LeaseAnswer:
    request = LeaseRequest(**body)  # type: ignore[arg-type]
    return await worker.api.call(CREATE_LEASE, params=params(machine_id), body=request, nonce=nonce)


async def test_a_lease_is_answered_in_an_envelope_and_flat(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    lease = await _take(worker, machine_id, ttl=30, description="deploying")
    assert lease.status == "success" and lease.data.nonce == lease.nonce
    assert (lease.data.owner, lease.data.description) == ("ann", "deploying")
    assert lease.data.version == worker.record(machine_id).version
    shown = await worker.api.call(GET_LEASE, params=params(machine_id))
    assert shown.data.nonce == lease.nonce, "clients release with what they read here"


async def test_a_lease_is_refreshed_with_its_own_nonce_only(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.stopped()
    lease = await _take(worker, machine_id, ttl=30)
    with pytest.raises(LeaseHeld):
        await _take(worker, machine_id)
    await stall.clock.sleep(10)
    again = await _take(worker, machine_id, nonce=lease.nonce, ttl=30)
    assert again.nonce == lease.nonce and again.expires_at == lease.expires_at + 10


async def test_the_query_may_say_how_long(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.stopped()
    lease = await worker.api.call(CREATE_LEASE, params=params(machine_id), query=LeaseQuery(ttl=13.0))
    assert lease.expires_at == int(stall.clock.now() + 13)


async def test_an_expired_lease_is_none(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.stopped()
    await _take(worker, machine_id, ttl=5)
    await stall.clock.sleep(5)
    with pytest.raises(NotFound, match="lease not found"):
        await worker.api.call(GET_LEASE, params=params(machine_id))
    await worker.start(machine_id)


async def test_a_lease_is_released_by_its_holder(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    lease = await _take(worker, machine_id)
    with pytest.raises(LeaseHeld):
        await worker.api.call(RELEASE_LEASE, params=params(machine_id))
    answer = await worker.api.call(RELEASE_LEASE, params=params(machine_id), nonce=lease.nonce)
    assert answer.data.ok
    with pytest.raises(NotFound, match="lease not found"):
        await worker.api.call(RELEASE_LEASE, params=params(machine_id), nonce=lease.nonce)


async def test_a_machine_that_is_gone_has_no_lease_to_take_or_release(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    lease = await _take(worker, machine_id)
    await worker.destroy(machine_id, nonce=lease.nonce)
    await worker.reaches(machine_id, State.DESTROYED)
    with pytest.raises(NotFound, match="machine not found"):
        await _take(worker, machine_id)
    with pytest.raises(NotFound, match="lease not found"):
        await worker.api.call(RELEASE_LEASE, params=params(machine_id), nonce=lease.nonce)


NOBODY = "00000000000bad"


async def test_a_machine_that_is_not_there_has_no_memory(worker: SimWorker) -> None:
    with pytest.raises(NotFound, match="machine not found"):
        await worker.api.call(GET_MEMORY, params=params(NOBODY))
    with pytest.raises(NotFound, match="machine not found"):
        await worker.api.call(SET_MEMORY, params=params(NOBODY), body=SetMemoryRequest(limit_mb=64))
    with pytest.raises(NotFound, match="machine not found"):
        await worker.api.call(RECLAIM_MEMORY, params=params(NOBODY), body=ReclaimRequest(amount_mb=1))


async def test_a_machine_of_another_app_is_not_there_either(worker: SimWorker) -> None:
    await worker.app("other")
    machine_id = await worker.started()
    with pytest.raises(NotFound, match="machine not found"):
        await worker.api.call(GET_MEMORY, params=params(machine_id, "other"))
