import signal
from typing import Any

import pytest

from hawker.ids import MachineId
from hawker.machine import State
from hawker.node import Resources
from hawker.runtime.fake_host import FakeFault, Instance
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker.lifecycle.stop import PATIENT
from tests.worker.invariants import check_at_rest

pytestmark = pytest.mark.anyio


async def test_stop_ends_the_instance_and_gives_back_its_room(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    await worker.stop(machine_id)
    record = await worker.reaches(machine_id, State.STOPPED)
    assert worker.events(machine_id)[-2:] == ["stop/stopping", "exit/stopped"]
    assert record.holds == Resources() and not stall.rootfs.mounted and stall.host.running() == {}
    event = (await worker.exits(machine_id))[0].request
    assert event is not None and event.exit_event is not None
    assert event.exit_event.requested_stop and event.exit_event.signal == signal.SIGINT
    check_at_rest(stall)


async def test_the_signal_is_the_callers_or_the_configs_or_sigint(worker: SimWorker, stall: MemoryWorld) -> None:
    plain, own = await worker.started(), await worker.started(stop_config={"signal": "SIGTERM"})
    asked = await worker.started(stop_config={"signal": "SIGTERM"})
    await worker.stop(plain)
    await worker.stop(own)
    await worker.stop(asked, signal="SIGUSR1")
    sent = {}
    for machine_id in (plain, own, asked):
        await worker.reaches(machine_id, State.STOPPED)
        sent[machine_id] = stall.host.signals(worker.record(machine_id).id)
    assert list(sent.values()) == [[signal.SIGINT], [signal.SIGTERM], [signal.SIGUSR1]]


async def test_a_process_that_ignores_the_signal_is_killed_when_its_time_is_over(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine_id = await worker.started()
    stall.host.stubborn.add(worker.record(machine_id).id)
    before = stall.clock.now()
    await worker.stop(machine_id, timeout="20s")
    await worker.reaches(machine_id, State.STOPPED)
    assert 20 <= stall.clock.now() - before < 21
    event = (await worker.exits(machine_id))[0].request
    assert event is not None and event.exit_event is not None and event.exit_event.exit_code == 137


async def test_stopping_what_is_off_changes_nothing(worker: SimWorker) -> None:
    machine_id = await worker.stopped()
    before = worker.record(machine_id)
    await worker.stop(machine_id)
    assert worker.record(machine_id) == before


async def test_stop_in_the_restart_backoff_cancels_the_start_that_was_to_come(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine_id = await worker.started()
    stall.host.end(worker.record(machine_id).id, 1)
    await worker.reaches(machine_id, State.STARTING)
    await worker.stop(machine_id)
    await worker.reaches(machine_id, State.STOPPED)
    assert worker.parts.runner.list(active=True) == []
    await stall.clock.sleep(600)
    assert worker.record(machine_id).state is State.STOPPED and stall.host.running() == {}
    check_at_rest(stall)


async def test_a_stop_outlasts_a_host_that_refuses_for_a_while(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started()
    stall.host.script("stop", *[FakeFault(error=OSError("no space left on device"))] * 20)
    await worker.stop(machine_id)
    await worker.at_rest()
    assert worker.record(machine_id).state is State.STOPPED and len(worker.parts.runner.list(flow="stop")) == 1
    check_at_rest(stall)


async def test_an_instance_that_cannot_be_stopped_for_long_is_stopped_by_the_reconciler(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine_id = await worker.started()
    stall.host.script("stop", *[FakeFault(error=OSError("stuck"))] * PATIENT.attempts)
    await worker.stop(machine_id)
    await worker.at_rest(1.0)
    assert worker.record(machine_id).state is State.STOPPING and stall.host.running() != {}
    await worker.reaches(machine_id, State.STOPPED)
    check_at_rest(stall)


async def test_stopping_an_instance_that_was_lost_records_it_as_killed(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started()
    stall.host.remove(MachineId(machine_id))
    stall.host.script("recover", FakeFault(delay_s=3600), FakeFault(delay_s=3600))
    async with stall.open() as worker:
        await worker.stop(machine_id)
        await worker.reaches(machine_id, State.STOPPED)
        event = (await worker.exits(machine_id))[0].request
    assert event is not None and event.exit_event is not None
    assert event.exit_event.exit_code == 137 and event.exit_event.reason == "the instance was gone"


def container(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "hawker/hello", "exec": ["serve"], **more}


CONTAINERS = [container("web", stop={"signal": "SIGTERM", "timeout": "30s"}), container("db"), container("log")]


def signals(instance: Instance) -> list[int]:
    ended = [process.last_exit for process in instance.processes]
    return [exit.signal for exit in ended if exit is not None]


async def tended(worker: SimWorker, stall: MemoryWorld, **config: Any) -> tuple[str, Instance]:
    machine_id = await worker.started(containers=CONTAINERS, **config)
    await stall.clock.sleep(0.1)
    instance = stall.host.look(MachineId(machine_id))
    assert instance is not None
    return machine_id, instance


async def test_each_container_is_stopped_in_its_own_way(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id, instance = await tended(worker, stall, stop_config={"signal": "SIGQUIT"})
    await worker.stop(machine_id)
    await worker.reaches(machine_id, State.STOPPED)
    assert signals(instance) == [15, 3, 3]


async def test_whoever_asks_for_another_way_gets_it_for_all(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id, instance = await tended(worker, stall)
    await worker.stop(machine_id, signal="SIGHUP")
    await worker.reaches(machine_id, State.STOPPED)
    assert signals(instance) == [1, 1, 1]


async def test_an_update_stops_what_runs_as_its_own_config_says(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id, instance = await tended(worker, stall)
    await worker.update(machine_id, containers=[container("other", stop={"signal": "SIGHUP"})])
    await worker.reaches(machine_id, State.STARTED)
    assert signals(instance) == [15, 2, 2]
    fresh = stall.host.look(MachineId(machine_id))
    assert fresh is not None and [process.spec.name for process in fresh.processes] == ["other"]


async def test_a_suspended_machine_is_let_go_to_be_stopped(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id, instance = await tended(worker, stall)
    await worker.parts.deps.driver.suspend(MachineId(machine_id))
    await worker.stop(machine_id)
    await worker.reaches(machine_id, State.STOPPED)
    assert signals(instance) == [15, 2, 2]


async def test_none_is_started_again_while_the_machine_stops(worker: SimWorker, stall: MemoryWorld) -> None:
    again = [container("a", restart={"policy": "always"}), container("b", restart={"policy": "always"})]
    machine_id = await worker.started(containers=again)
    await stall.clock.sleep(0.1)
    instance = stall.host.look(MachineId(machine_id))
    assert instance is not None
    stall.host.stubborn.add(MachineId(machine_id))
    await worker.stop(machine_id)
    await worker.reaches(machine_id, State.STOPPED)
    assert [process.run for process in instance.processes] == [1, 1]
