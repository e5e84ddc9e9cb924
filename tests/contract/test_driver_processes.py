"""What every driver promises about single processes of a machine: held ones, runs, ends, and who is told of them."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import msgspec
import pytest

from hawker.errors import BadRequest, NotFound, WrongState
from hawker.ids import MachineId
from hawker.runtime.driver import Driver, Phase, ProcessPhase, ProcessState
from hawker.runtime.spec import Ends, InstanceSpec
from tests.contract.drivers import Rig
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

FOREVER = ("sleep", "1000")


async def told(rig: Rig, *commands: str | tuple[str, ...], held: tuple[int, ...] = ()) -> InstanceSpec:
    """A running machine that ends when it is told to."""
    spec = await rig.spec(*commands)
    processes = tuple(
        msgspec.structs.replace(process, held=index in held) for index, process in enumerate(spec.processes)
    )
    spec = msgspec.structs.replace(spec, processes=processes, ends=Ends.TOLD)
    await rig.driver.prepare(spec)
    await rig.driver.start(spec)
    return spec


async def until(
    driver: Driver, machine_id: MachineId, meets: Callable[[tuple[ProcessState, ...]], bool]
) -> tuple[ProcessState, ...]:
    states = await driver.process_states(machine_id)
    while not meets(states):
        states = await driver.await_process_change(machine_id, states)
    return states


def exited(index: int) -> Callable[[tuple[ProcessState, ...]], bool]:
    return lambda states: states[index].state is ProcessPhase.EXITED


async def output(driver: Driver, machine_id: MachineId) -> list[tuple[int, bytes]]:
    return [(chunk.process, chunk.data) for chunk in driver.output(machine_id)]


# --- states


async def test_a_running_process_has_one_run(rig: Rig) -> None:
    spec = await rig.started(FOREVER, FOREVER)
    one, two = await rig.renew().process_states(spec.machine_id)
    assert (one.state, one.run, one.exit) == (two.state, two.run, two.exit) == (ProcessPhase.RUNNING, 1, None)
    assert one.pid != two.pid and one.started_at is not None


async def test_processes_of_no_instance_are_not_found(rig: Rig) -> None:
    with pytest.raises(NotFound):
        await rig.driver.process_states(MachineId("ffffffffffffff"))


async def test_nothing_ran_in_what_is_only_prepared(rig: Rig) -> None:
    spec = await rig.spec(FOREVER)
    await rig.driver.prepare(spec)
    assert [state.state for state in await rig.driver.process_states(spec.machine_id)] == [ProcessPhase.HELD]


async def test_the_states_outlive_the_machine(rig: Rig) -> None:
    spec = await rig.started(FOREVER, "exit 5")
    await rig.driver.wait(spec.machine_id)
    one, two = await rig.renew().process_states(spec.machine_id)
    assert (one.state, two.state) == (ProcessPhase.EXITED, ProcessPhase.EXITED)
    assert two.exit is not None and two.exit.exit_code == 5
    assert one.exit is not None and one.exit.signal in (9, 15)


# --- held


async def test_a_held_process_waits_for_its_start(rig: Rig) -> None:
    spec = await told(rig, "echo never; sleep 1000", held=(0,))
    assert (await rig.driver.inspect(spec.machine_id)).phase is Phase.RUNNING
    (state,) = await rig.driver.process_states(spec.machine_id)
    assert (state.state, state.run, state.pid, state.exit) == (ProcessPhase.HELD, 0, None, None)
    assert rig.driver.output(spec.machine_id) == []


async def test_starting_a_held_process_is_its_first_run(rig: Rig) -> None:
    spec = await told(rig, FOREVER, "echo up; sleep 1000", held=(1,))
    state = await rig.driver.start_process(spec.machine_id, 1, 1)
    assert (state.state, state.run) == (ProcessPhase.RUNNING, 1)
    await eventually(partial(output, rig.driver, spec.machine_id))
    assert await output(rig.driver, spec.machine_id) == [(1, b"up\n")]


async def test_a_held_process_may_end_a_machine_that_ends_with_the_first(rig: Rig) -> None:
    spec = await rig.spec(FOREVER, "exit 4")
    held = msgspec.structs.replace(spec.processes[1], held=True)
    spec = msgspec.structs.replace(spec, processes=(spec.processes[0], held))
    await rig.driver.prepare(spec)
    assert (await rig.driver.start(spec)).phase is Phase.RUNNING
    await rig.driver.start_process(spec.machine_id, 1, 1)
    exit = await rig.driver.wait(spec.machine_id)
    assert (exit.exit_code, exit.process) == (4, 1)


# --- runs


async def test_the_end_of_a_process_leaves_a_told_machine(rig: Rig) -> None:
    spec = await told(rig, FOREVER, "exit 6")
    states = await until(rig.driver, spec.machine_id, exited(1))
    assert states[0].state is ProcessPhase.RUNNING
    assert states[1].exit is not None and (states[1].exit.exit_code, states[1].exit.process) == (6, 1)
    assert (await rig.driver.inspect(spec.machine_id)).phase is Phase.RUNNING


@pytest.mark.booted
async def test_a_process_runs_again(rig: Rig) -> None:
    spec = await told(rig, "echo once; exit 6")
    for run in (2, 3):
        await until(rig.driver, spec.machine_id, exited(0))
        await rig.driver.start_process(spec.machine_id, 0, run)
    (state,) = await until(rig.driver, spec.machine_id, lambda states: states[0].run == 3 and exited(0)(states))
    assert state.exit is not None and state.exit.exit_code == 6

    async def has_said_all() -> bool:
        return await output(rig.driver, spec.machine_id) == [(0, b"once\n")] * 3

    await eventually(has_said_all)  # a pipe may be read past the exit


async def test_the_last_exit_is_kept_while_the_next_run_goes_on(rig: Rig) -> None:
    spec = await told(rig, FOREVER)
    await rig.driver.stop_process(spec.machine_id, 0, "SIGTERM", 60)
    await rig.driver.start_process(spec.machine_id, 0, 2)
    (state,) = await rig.renew().process_states(spec.machine_id)
    assert (state.state, state.run, state.exit) == (ProcessPhase.RUNNING, 2, None)
    assert state.last_exit is not None and state.last_exit.signal == 15


async def test_a_run_is_begun_once_however_often_it_is_asked_for(rig: Rig) -> None:
    spec = await told(rig, "echo once; sleep 1000", held=(0,))
    for driver in (rig.driver, rig.renew(), rig.renew()):
        state = await driver.start_process(spec.machine_id, 0, 1)
        assert (state.state, state.run) == (ProcessPhase.RUNNING, 1)
    await eventually(partial(output, rig.driver, spec.machine_id))
    await rig.driver.stop_process(spec.machine_id, 0, "SIGTERM", 60)
    assert (await rig.renew().start_process(spec.machine_id, 0, 1)).state is ProcessPhase.EXITED
    assert await output(rig.driver, spec.machine_id) == [(0, b"once\n")]


async def test_starts_of_one_run_at_the_same_time_are_one(rig: Rig) -> None:
    spec = await told(rig, "echo once; sleep 1000", held=(0,))
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(rig.renew().start_process, spec.machine_id, 0, 1)
    await eventually(partial(output, rig.driver, spec.machine_id))
    await rig.driver.stop(spec.machine_id, "SIGKILL", 5)
    assert await output(rig.driver, spec.machine_id) == [(0, b"once\n")]


async def test_a_run_out_of_its_turn_is_refused(rig: Rig) -> None:
    spec = await told(rig, FOREVER, FOREVER, held=(1,))
    with pytest.raises(WrongState, match="goes on"):
        await rig.driver.start_process(spec.machine_id, 0, 2)
    with pytest.raises(WrongState, match="is not the next"):
        await rig.driver.start_process(spec.machine_id, 1, 2)
    with pytest.raises(BadRequest, match="no process number 2"):
        await rig.driver.start_process(spec.machine_id, 2, 1)


async def test_nothing_is_started_in_what_has_ended(rig: Rig) -> None:
    spec = await told(rig, FOREVER, held=(0,))
    await rig.driver.stop(spec.machine_id, "SIGTERM", 60)
    with pytest.raises(WrongState):
        await rig.driver.start_process(spec.machine_id, 0, 1)


async def test_a_program_that_cannot_be_executed_is_an_end_with_its_reason(rig: Rig) -> None:
    spec = await told(rig, FOREVER, ("/nope",))
    states = await until(rig.driver, spec.machine_id, exited(1))
    exit = states[1].exit
    assert exit is not None and (exit.exit_code, exit.reason) == (127, "exec /nope: no such file or directory")
    again = await rig.driver.start_process(spec.machine_id, 1, 2)
    assert (
        (again.state, again.run) == (ProcessPhase.EXITED, 2) and again.exit is not None and again.exit.exit_code == 127
    )
    assert (await rig.driver.inspect(spec.machine_id)).phase is Phase.RUNNING


async def test_an_end_that_nobody_watched_is_found_by_a_new_daemon(rig: Rig) -> None:
    spec = await told(rig, FOREVER, "exit 3")
    states = await until(rig.renew(), spec.machine_id, exited(1))
    assert await rig.renew().process_states(spec.machine_id) == states


# --- changes


async def test_a_change_since_last_seen_is_told_at_once(rig: Rig) -> None:
    spec = await told(rig, FOREVER)
    assert await rig.driver.await_process_change(spec.machine_id, ()) != ()


async def test_a_waiting_caller_hears_of_each_end(rig: Rig) -> None:
    spec = await told(rig, FOREVER, FOREVER)
    seen = await rig.driver.process_states(spec.machine_id)
    heard: list[tuple[ProcessState, ...]] = []

    async def wait(driver: Driver) -> None:
        heard.append(await driver.await_process_change(spec.machine_id, seen))

    async with anyio.create_task_group() as tasks:
        for driver in (rig.driver, rig.driver, rig.renew()):
            tasks.start_soon(wait, driver)
        await anyio.wait_all_tasks_blocked()
        await rig.driver.stop_process(spec.machine_id, 1, "SIGTERM", 60)
    assert all(states[0].state is ProcessPhase.RUNNING and states[1].state is ProcessPhase.EXITED for states in heard)
    assert len(heard) == 3


async def test_waiting_for_a_change_ends_with_the_machine(rig: Rig) -> None:
    spec = await told(rig, FOREVER, held=(0,))
    seen = await rig.driver.process_states(spec.machine_id)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rig.driver.await_process_change, spec.machine_id, seen)
        await anyio.wait_all_tasks_blocked()
        await rig.renew().stop(spec.machine_id, "SIGTERM", 60)


# --- to the end of a process


async def test_stopping_a_process_leaves_the_others(rig: Rig) -> None:
    spec = await told(rig, FOREVER, FOREVER)
    state = await rig.driver.stop_process(spec.machine_id, 0, "SIGTERM", 60)
    assert state.exit is not None and (state.exit.signal, state.exit.exit_code) == (15, 143)
    assert (await rig.driver.process_states(spec.machine_id))[1].state is ProcessPhase.RUNNING


async def test_stopping_what_does_not_run_is_no_change(rig: Rig) -> None:
    spec = await told(rig, FOREVER, held=(0,))
    assert (await rig.driver.stop_process(spec.machine_id, 0, "SIGTERM", 60)).state is ProcessPhase.HELD
    with pytest.raises(BadRequest, match="SIGNOPE"):
        await rig.driver.stop_process(spec.machine_id, 0, "SIGNOPE", 5)


async def test_a_process_that_does_not_listen_is_killed_with_what_it_started(real: Rig) -> None:
    spec = await told(real, "trap '' TERM; sleep 977 & echo up; while true; do sleep 0.1; done", FOREVER)
    await eventually(partial(output, real.driver, spec.machine_id))
    state = await real.driver.stop_process(spec.machine_id, 0, "SIGTERM", 0.2)
    assert state.exit is not None and state.exit.signal == 9
    await eventually(partial(_gone, real.driver, spec.machine_id, "sleep 977"))
    assert (await real.driver.process_states(spec.machine_id))[1].state is ProcessPhase.RUNNING


async def test_children_of_a_run_end_with_it(real: Rig) -> None:
    spec = await told(real, "sleep 978 & exit 2", FOREVER)
    await until(real.driver, spec.machine_id, exited(0))
    await eventually(partial(_gone, real.driver, spec.machine_id, "sleep 978"))


async def _gone(driver: Driver, machine_id: MachineId, command: str) -> bool:
    return command not in {process.command for process in await driver.processes(machine_id)}


# --- to the end of the machine


async def test_the_conclusion_is_the_exit_of_that_process(rig: Rig) -> None:
    spec = await told(rig, "exit 3", "exit 4", FOREVER)
    await until(rig.driver, spec.machine_id, lambda states: exited(0)(states) and exited(1)(states))
    exit = await rig.driver.conclude(spec.machine_id, 1)
    assert (exit.exit_code, exit.process) == (4, 1)
    assert await rig.renew().wait(spec.machine_id) == exit
    assert await rig.renew().conclude(spec.machine_id, 0) == exit, "what has ended stays so"
    states = await rig.renew().process_states(spec.machine_id)
    assert [state.exit.exit_code for state in states if state.exit is not None][:2] == [3, 4]
    assert states[2].state is ProcessPhase.EXITED


async def test_the_reason_of_a_conclusion_is_kept(rig: Rig) -> None:
    spec = await told(rig, ("/nope",), FOREVER)
    await until(rig.driver, spec.machine_id, exited(0))
    assert (await rig.driver.conclude(spec.machine_id, 0)).reason == "exec /nope: no such file or directory"


async def test_a_run_under_way_or_never_begun_concludes_nothing(rig: Rig) -> None:
    spec = await told(rig, FOREVER, FOREVER, held=(1,))
    for index in (0, 1):
        with pytest.raises(WrongState, match="has not ended"):
            await rig.driver.conclude(spec.machine_id, index)
    assert (await rig.driver.inspect(spec.machine_id)).phase is Phase.RUNNING


async def test_a_told_machine_is_stopped_as_any(rig: Rig) -> None:
    spec = await told(rig, FOREVER, FOREVER)
    exit = await rig.driver.stop(spec.machine_id, "SIGTERM", 60)
    assert (exit.exit_code, exit.signal) == (143, 15)


async def test_a_told_machine_that_rests_is_stopped_as_it_ended_last(rig: Rig) -> None:
    spec = await told(rig, "exit 3", FOREVER, held=(1,))
    await until(rig.driver, spec.machine_id, exited(0))
    assert (await rig.driver.stop(spec.machine_id, "SIGTERM", 60)).exit_code == 3


async def test_a_pilot_killed_from_outside_kills_all_that_ran(rig: Rig) -> None:
    spec = await told(rig, "exit 3", FOREVER)
    await until(rig.driver, spec.machine_id, exited(0))
    await rig.kill_pilot(spec.machine_id)
    exit = await rig.renew().wait(spec.machine_id)
    assert (exit.exit_code, exit.signal) == (137, 9)
    one, two = await rig.renew().process_states(spec.machine_id)
    assert one.exit is not None and two.exit is not None
    assert (one.exit.exit_code, two.exit.exit_code) == (3, 137)


async def test_many_runs_are_remembered_by_their_last(real: Rig) -> None:
    """More than their records have room for."""
    spec = await told(real, FOREVER, ("/nope",))
    states: Callable[[], Awaitable[tuple[ProcessState, ...]]] = partial(real.driver.process_states, spec.machine_id)
    await until(real.driver, spec.machine_id, exited(1))
    for run in range(2, 400):
        await real.driver.start_process(spec.machine_id, 1, run)
    before = await states()
    await real.kill_pilot(spec.machine_id)
    await real.driver.wait(spec.machine_id)
    after = await states()
    assert before[1].run == after[1].run == 399 and after[1].exit == before[1].exit
    assert after[0].run == 1 and after[0].started_at == before[0].started_at
