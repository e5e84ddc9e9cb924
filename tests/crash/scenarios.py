"""For each flow, a scenario that plays it: what is there before, and the call that is acknowledged or not when the
daemon dies. After it, whatever happened, the machine must end in one of the scenario's states."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from hawker.fsm.contract import Flow
from hawker.machine import State
from hawker.sim.node.sim_worker import SimWorker
from hawker.up.wiring import NODE_FLOWS

Setting = Callable[[SimWorker], Awaitable[str]]


async def _nothing(worker: SimWorker) -> str:
    return ""


async def _running(worker: SimWorker) -> str:
    return await worker.started(env={"A": "1"}, guest={"memory_mb": 256, "max_memory_mb": 512})


async def _off(worker: SimWorker) -> str:
    return await worker.stopped(env={"A": "1"})


async def _suspended(worker: SimWorker) -> str:
    machine_id = await _running(worker)
    await worker.suspend(machine_id)
    await worker.reaches(machine_id, State.SUSPENDED)
    return machine_id


async def _create(worker: SimWorker, machine_id: str) -> None:
    await worker.create(key="the order")


async def _prepare(worker: SimWorker, machine_id: str) -> None:
    await worker.create(key="the order", order={"skip_launch": True})


async def _start(worker: SimWorker, machine_id: str) -> None:
    await worker.start(machine_id)


async def _stop(worker: SimWorker, machine_id: str) -> None:
    await worker.stop(machine_id)


async def _suspend(worker: SimWorker, machine_id: str) -> None:
    await worker.suspend(machine_id)


async def _memory(worker: SimWorker, machine_id: str) -> None:
    await worker.set_memory(machine_id, 512)


async def _restart(worker: SimWorker, machine_id: str) -> None:
    await worker.restart(machine_id)


async def _update(worker: SimWorker, machine_id: str) -> None:
    await worker.update(machine_id, env={"A": "2"})


async def _destroy(worker: SimWorker, machine_id: str) -> None:
    await worker.destroy(machine_id, force=True)


async def _finish(worker: SimWorker, machine_id: str) -> None:
    """The workload is done by itself: flow `rest`."""
    worker.host.end(worker.record(machine_id).id, 0)


async def _fail(worker: SimWorker, machine_id: str) -> None:
    """The workload fails and is started again: flow `start` with a delay."""
    worker.host.end(worker.record(machine_id).id, 3)


async def _gone(worker: SimWorker) -> str:
    machine_id = await _off(worker)
    await worker.destroy(machine_id)
    await worker.reaches(machine_id, State.DESTROYED)
    return machine_id


async def _wait(worker: SimWorker, machine_id: str) -> None:
    """Nobody asks for it: the archivist sees to it by itself."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`undone` and `done`: where the machine ends when the call took no effect, and when it did. `spoilt`: how often
    the driver's `start` fails in it, so that the flow turns back. `archives`: the node has an archive in it, and the
    machine's history must be there in the end."""

    name: str
    flow: str
    before: Setting
    act: Callable[[SimWorker, str], Awaitable[None]]
    undone: State | None
    done: State
    spoilt: bool = False
    archives: bool = False


SCENES = (
    Scenario("create", "create", _nothing, _create, None, State.STARTED),
    Scenario("create, not launched", "create", _nothing, _prepare, None, State.STOPPED),
    Scenario("create that fails", "create", _nothing, _create, None, State.DESTROYED, spoilt=True),
    Scenario("start", "start", _off, _start, State.STOPPED, State.STARTED),
    Scenario("start that fails", "start", _off, _start, State.STOPPED, State.FAILED, spoilt=True),
    Scenario("start after a failure", "start", _running, _fail, State.STARTED, State.STARTED),
    Scenario("stop", "stop", _running, _stop, State.STARTED, State.STOPPED),
    Scenario("suspend", "suspend", _running, _suspend, State.STARTED, State.SUSPENDED),
    Scenario("resume", "resume", _suspended, _start, State.SUSPENDED, State.STARTED),
    Scenario("stop of a suspended", "stop", _suspended, _stop, State.SUSPENDED, State.STOPPED),
    Scenario("restart of a suspended", "restart", _suspended, _restart, State.SUSPENDED, State.STARTED),
    Scenario("update of a suspended", "update", _suspended, _update, State.SUSPENDED, State.STARTED),
    Scenario("destroy of a suspended", "destroy", _suspended, _destroy, State.SUSPENDED, State.DESTROYED),
    Scenario("memory", "memory", _running, _memory, State.STARTED, State.STARTED),
    Scenario("rest", "rest", _running, _finish, State.STARTED, State.STOPPED),
    Scenario("restart", "restart", _running, _restart, State.STARTED, State.STARTED),
    Scenario("update", "update", _running, _update, State.STARTED, State.STARTED),
    Scenario("update that fails", "update", _running, _update, State.STARTED, State.FAILED, spoilt=True),
    Scenario("destroy", "destroy", _running, _destroy, State.STARTED, State.DESTROYED),
    Scenario("archive", "archive", _gone, _wait, State.DESTROYED, State.DESTROYED, archives=True),
)


def places() -> list[tuple[Scenario, str]]:
    """Every step of every flow, before and after it; of the scenarios that fail, every undo."""
    table = []
    for scenario in SCENES:
        steps = [(flow.name, step) for flow in _flows_of(scenario) for step in flow.steps]
        names = [f"{flow}.{step.name}" for flow, step in steps if not scenario.spoilt]
        names += [f"{flow}.{step.name} undo" for flow, step in steps if scenario.spoilt and step.undo is not None]
        table += [(scenario, f"{name} {moment}") for name in names for moment in ("before", "after")]
    return table


def _flows_of(scenario: Scenario) -> list[Flow[Any]]:
    wanted = {scenario.flow, "pull"} if scenario.flow == "create" else {scenario.flow}
    return [flow for flow in NODE_FLOWS if flow.name in wanted]
