from typing import Any

import pytest

from hawker.machine import State
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld

pytestmark = pytest.mark.anyio


def container(name: str, command: str = "serve", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "hawker/hello", "exec": ["sh", "-c", command], **more}


CHECKED = container("web", healthchecks=[{"name": "up", "tcp": {"port": 80}}])


def containers(worker: SimWorker, machine_id: str) -> list[tuple[str, str]]:
    return list(worker.parts.tending.containers(worker.record(machine_id)))


def checks(worker: SimWorker, machine_id: str) -> list[tuple[str, str]]:
    return [(each.name, each.status) for each in worker.parts.tending.checks(worker.record(machine_id))]


async def test_a_machine_that_is_off_has_its_containers_stopped(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.stopped(containers=[CHECKED, container("db")])
    assert containers(worker, machine_id) == [("web", "stopped"), ("db", "stopped")]
    assert checks(worker, machine_id) == [("up", "warning")]
    await worker.start(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    await stall.clock.sleep(0.1)
    assert containers(worker, machine_id) == [("web", "running"), ("db", "running")]
    assert checks(worker, machine_id) == [("up", "passing")]
    await worker.stop(machine_id)
    await worker.reaches(machine_id, State.STOPPED)
    assert containers(worker, machine_id) == [("web", "stopped"), ("db", "stopped")]


async def test_a_machine_without_containers_has_none_to_show(worker: SimWorker) -> None:
    machine_id = await worker.started()
    assert containers(worker, machine_id) == [] and checks(worker, machine_id) == []


async def test_an_update_brings_other_containers(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(containers=[container("web"), container("db")])
    await worker.update(machine_id, containers=[container("log")])
    await worker.reaches(machine_id, State.STARTED)
    await stall.clock.sleep(0.1)
    assert containers(worker, machine_id) == [("log", "running")]
    await worker.update(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    assert containers(worker, machine_id) == []


async def test_a_suspended_machine_is_left_alone_and_taken_up_again(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(containers=[container("web"), container("job", "exit 1")])
    await stall.clock.sleep(0.1)
    await worker.suspend(machine_id)
    await worker.reaches(machine_id, State.SUSPENDED)
    await stall.clock.sleep(60)
    assert containers(worker, machine_id) == [("web", "suspended"), ("job", "suspended")]
    await worker.start(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    await stall.clock.sleep(0.1)
    assert containers(worker, machine_id)[0] == ("web", "running")


async def test_who_waits_for_the_machine_hears_of_its_containers(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(containers=[container("web"), container("job", "sleep 5")])
    heard: list[str] = []
    worker.parts.changes.listen(heard.append)
    await stall.clock.sleep(6)
    assert machine_id in heard
