from typing import Any

import pytest

from hawker.ids import MachineId
from hawker.machine import State
from hawker.runtime.fake_host import Instance
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld

pytestmark = pytest.mark.anyio


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
