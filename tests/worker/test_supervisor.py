from itertools import pairwise

import pytest

from hawker.errors import leaf_of
from hawker.ids import InstanceId, MachineId
from hawker.machine import RESTART_WINDOW_S, State
from hawker.node import Resources
from hawker.runtime.fake_host import FakeFault
from hawker.sim.node.crash_points import Death
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.store.memory_store import StoreFaults
from hawker.worker.assembly import exit_handler_of
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio


async def begun(worker: SimWorker) -> tuple[MachineId, InstanceId]:
    machine_id = MachineId(await worker.started(restart={"policy": "no"}))
    running = worker.record(machine_id).running
    assert running is not None
    return machine_id, running.instance_id


async def test_an_instance_is_over_once_the_host_says_so(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id, instance_id = await begun(worker)
    endings = exit_handler_of(worker.parts)
    assert not await endings.is_over(machine_id, instance_id)
    assert await endings.is_over(machine_id, InstanceId("I0")), "another one of the machine"
    stall.host.end(machine_id, 3)
    assert await endings.is_over(machine_id, instance_id)


async def test_the_supervisor_and_another_record_an_end_once(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id, instance_id = await begun(worker)
    stall.host.end(machine_id, 3)
    endings = exit_handler_of(worker.parts)
    for _ in range(2):
        await endings.settle(machine_id, instance_id)
    await worker.reaches(machine_id, State.STOPPED)
    assert len(await worker.exits(machine_id)) == 1
    check_at_rest(stall)


async def test_the_end_of_an_older_instance_changes_nothing(worker: SimWorker) -> None:
    machine_id, _ = await begun(worker)
    before = worker.record(machine_id)
    await exit_handler_of(worker.parts).settle(machine_id, InstanceId("I0"))
    assert worker.record(machine_id) == before


async def test_the_end_of_a_machine_that_is_gone_is_nobodys(worker: SimWorker) -> None:
    await exit_handler_of(worker.parts).settle(MachineId("00000000000bad"), InstanceId("I0"))
    assert worker.machines() == []


LONG_S = 3600.0


async def _codes(worker: SimWorker, machine_id: str) -> list[int]:
    """Exit codes, oldest first."""
    found = [event.request.exit_event for event in await worker.exits(machine_id) if event.request]
    return [exit.exit_code for exit in reversed(found) if exit is not None]


async def _end(worker: SimWorker, machine_id: str, code: int) -> None:
    worker.host.end(MachineId(machine_id), code)
    await worker.reaches(machine_id, State.STARTING, State.STOPPED)


@pytest.mark.parametrize(
    ("policy", "code", "state"),
    [
        ("no", 0, State.STOPPED),
        ("no", 1, State.STOPPED),
        ("on-failure", 0, State.STOPPED),
        ("on-failure", 1, State.STARTED),
        ("always", 0, State.STARTED),
        ("always", 1, State.STARTED),
    ],
)
async def test_the_policy_decides_what_follows_an_exit(
    worker: SimWorker, stall: MemoryWorld, policy: str, code: int, state: State
) -> None:
    machine_id = await worker.started(restart={"policy": policy})
    stall.host.end(MachineId(machine_id), code)
    await stall.clock.sleep(10)
    record = await worker.reaches(machine_id, state)
    assert await _codes(worker, machine_id) == [code]
    assert record.restarts == (state is State.STARTED)
    check_at_rest(stall)


async def test_a_machine_without_a_policy_is_restarted_on_failure(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    stall.host.end(MachineId(machine_id), 2)
    await worker.reaches(machine_id, State.STARTING)
    await worker.reaches(machine_id, State.STARTED)


async def test_a_machine_that_fails_at_once_is_tried_again_ever_more_slowly_and_then_rests(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine = await worker.create(init={"exec": ["false"]}, restart={"policy": "on-failure", "max_retries": 4})
    record = await worker.reaches(machine.id, State.STOPPED)
    launches = [instance.started_at or 0.0 for instance in stall.host.ever[record.id]]
    waits = [later - earlier for earlier, later in pairwise(launches)]
    assert len(launches) == 5 and await _codes(worker, machine.id) == [1] * 5
    assert all(0.7 * due <= wait <= 1.35 * due for wait, due in zip(waits, (0.5, 1, 2, 4), strict=True)), waits
    assert record.holds == Resources()
    check_at_rest(stall)


async def test_a_machine_that_always_fails_is_never_started_hot(worker: SimWorker, stall: MemoryWorld) -> None:
    machine = await worker.create(init={"exec": ["false"]}, restart={"policy": "always"})
    await stall.clock.sleep(LONG_S)
    assert 90 < len(stall.host.ever[MachineId(machine.id)]) < 200


async def test_a_machine_that_ran_for_long_starts_a_new_count(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(restart={"policy": "on-failure", "max_retries": 1})
    await _end(worker, machine_id, 1)
    await worker.reaches(machine_id, State.STARTED)
    await stall.clock.sleep(RESTART_WINDOW_S + 1)
    await _end(worker, machine_id, 1)
    await worker.reaches(machine_id, State.STARTED)
    await _end(worker, machine_id, 1)
    await worker.reaches(machine_id, State.STOPPED)


async def test_auto_destroy_leaves_nothing_but_the_history(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(auto_destroy=True, restart={"policy": "no"})
    stall.host.end(MachineId(machine_id), 7)
    await worker.reaches(machine_id, State.DESTROYED)
    assert await _codes(worker, machine_id) == [7]
    check_at_rest(stall)


async def test_an_oom_kill_is_told(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(restart={"policy": "no"})
    stall.host.end(MachineId(machine_id), 137, signal=9, oom_killed=True)
    await worker.reaches(machine_id, State.STOPPED)
    request = (await worker.exits(machine_id))[0].request
    assert request is not None and request.exit_event is not None
    assert request.exit_event.oom_killed and not request.exit_event.requested_stop


@pytest.mark.parametrize(("policy", "state"), [("no", State.STOPPED), ("on-failure", State.STARTED)])
async def test_an_exit_while_no_daemon_watched_is_recorded_once_with_its_code(
    stall: MemoryWorld, policy: str, state: State
) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started(restart={"policy": policy})
    ended_at = stall.clock.now()
    stall.host.end(MachineId(machine_id), 42)
    await stall.clock.sleep(500)
    for _ in range(2):
        async with stall.open() as worker:
            await stall.clock.sleep(5)
            await worker.reaches(machine_id, state)
            assert await _codes(worker, machine_id) == [42]
            request = (await worker.exits(machine_id))[0].request
            assert request is not None and request.exit_event is not None
            assert request.exit_event.exited_at.timestamp() == pytest.approx(ended_at, abs=1)
    check_at_rest(stall)


async def test_an_exit_that_was_missed_is_known_before_the_first_answer(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started(restart={"policy": "no"})
    stall.host.end(MachineId(machine_id), 42)
    stall.host.script("recover", FakeFault(delay_s=1))
    async with stall.open() as worker:
        assert worker.record(machine_id).state is State.STOPPED


async def test_a_running_machine_goes_on_over_a_restart_of_the_daemon(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started()
        before = worker.record(machine_id)
    async with stall.open() as worker:
        await stall.clock.sleep(100)
        assert worker.record(machine_id) == before
        stall.host.end(MachineId(machine_id), 0)
        await worker.reaches(machine_id, State.STOPPED)


async def test_an_instance_lost_with_its_host_counts_as_killed_and_is_started_again(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started()
    stall.host.remove(MachineId(machine_id))
    async with stall.open() as worker:
        await stall.clock.sleep(5)
        await worker.reaches(machine_id, State.STARTED)
        assert await _codes(worker, machine_id) == [137]


@pytest.mark.parametrize("call", ["recover", "wait"])
async def test_a_host_that_cannot_be_asked_now_is_asked_again(stall: MemoryWorld, call: str) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started(restart={"policy": "no"})
    stall.host.end(MachineId(machine_id), 5)
    stall.host.script(call, *[FakeFault(error=OSError("input/output error"))] * 3)
    async with stall.open() as worker:
        await worker.reaches(machine_id, State.STOPPED)
        assert await _codes(worker, machine_id) == [5]


@pytest.mark.parametrize("call", ["recover", "wait"])
async def test_an_error_about_one_machine_that_nobody_foresaw_ends_no_other_watch(
    stall: MemoryWorld, call: str
) -> None:
    """At boot, and while it is watched."""
    async with stall.open() as worker:
        await worker.app()
        first, second = [MachineId(await worker.started(restart={"policy": "no"})) for _ in range(2)]
    stall.host.end(first, 5)
    stall.host.script(call, *[FakeFault(error=UnicodeError("what a tenant made"))] * 3)
    async with stall.open() as worker:
        stall.host.end(second, 6)
        for machine_id, code in ((first, 5), (second, 6)):
            await worker.reaches(machine_id, State.STOPPED)
            assert await _codes(worker, machine_id) == [code]


async def test_a_planted_death_ends_the_daemon_in_a_watch_too(stall: MemoryWorld) -> None:
    with pytest.raises(BaseException) as ended:
        async with stall.open() as worker:
            await worker.app()
            machine_id = MachineId(await worker.started(restart={"policy": "no"}))
            stall.host.script("wait", FakeFault(error=Death()))
            async with stall.open():
                stall.host.end(machine_id, 5)
                await stall.clock.sleep(100)
    assert leaf_of(ended.value).__class__ is Death


async def test_an_exit_that_cannot_be_stored_now_is_stored_later(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started(restart={"policy": "no"})
    booted = 1
    stall.crash(faults=StoreFaults(fail={booted + 1, booted + 2}))
    async with stall.open() as worker:
        stall.host.end(MachineId(machine_id), 5)
        await worker.reaches(machine_id, State.STOPPED)
        assert await _codes(worker, machine_id) == [5]
