"""Machines of several containers on a whole worker, in virtual time."""

from typing import Any

import pytest

from hawker.errors import Unavailable
from hawker.ids import MachineId
from hawker.machine import State
from hawker.runtime.driver import ProcessState
from hawker.runtime.fake_host import FakeFault
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker.health import ProbeResult

pytestmark = pytest.mark.anyio
BAD = ProbeResult(False, "refused")


def container(name: str, command: str = "serve", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "hawker/hello", "exec": ["sh", "-c", command], **more}


def after(name: str, condition: str) -> dict[str, Any]:
    return {"depends_on": [{"name": name, "condition": condition}]}


def check(port: int = 80, **more: Any) -> dict[str, Any]:
    return {"healthchecks": [{"name": f"up-{port}", "tcp": {"port": port}, "interval": 5, **more}]}


NEVER = {"restart": {"policy": "no"}}


async def started(worker: SimWorker, *containers: dict[str, Any], **config: Any) -> str:
    return await worker.started(containers=containers, **{"restart": {"policy": "no"}, **config})


async def states(worker: SimWorker, machine_id: str) -> list[tuple[str, int]]:
    found = await worker.parts.deps.driver.process_states(MachineId(machine_id))
    return [(state.state.value, state.run) for state in found]


async def state_of(worker: SimWorker, machine_id: str, index: int) -> ProcessState:
    return (await worker.parts.deps.driver.process_states(MachineId(machine_id)))[index]


async def shown(worker: SimWorker, machine_id: str) -> list[tuple[str, str]]:
    return [(each.name, each.state) for each in (await worker.get(machine_id)).containers]


async def test_containers_without_needs_are_started_at_once(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await started(worker, container("web"), container("db"))
    await stall.clock.sleep(0.1)
    assert await states(worker, machine_id) == [("running", 1), ("running", 1)]
    assert await shown(worker, machine_id) == [("web", "running"), ("db", "running")]


async def test_a_container_waits_for_the_success_of_another(worker: SimWorker, stall: MemoryWorld) -> None:
    web = container("web", **after("init", "exited_successfully"))
    machine_id = await started(worker, web, container("init", "sleep 10"))
    await stall.clock.sleep(9)
    assert await shown(worker, machine_id) == [("web", "pending"), ("init", "running")]
    await stall.clock.sleep(2)
    assert await shown(worker, machine_id) == [("web", "running"), ("init", "exited")]


async def test_a_container_waits_for_the_health_of_another(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.prober.answers[5432] = BAD
    machine_id = await started(worker, container("web", **after("db", "healthy")), container("db", **check(5432)))
    await stall.clock.sleep(9)
    assert await shown(worker, machine_id) == [("web", "pending"), ("db", "running")]
    stall.prober.answers.clear()
    await stall.clock.sleep(2)
    assert await shown(worker, machine_id) == [("web", "running"), ("db", "running")]


async def test_a_failed_container_is_started_again_and_waits_longer_each_time(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine_id = await started(worker, container("web"), container("job", "exit 3"))
    await stall.clock.sleep(0.4)
    assert (await states(worker, machine_id))[1] == ("exited", 1)
    await stall.clock.sleep(0.2)
    assert (await states(worker, machine_id))[1] == ("exited", 2)
    await stall.clock.sleep(1.0)
    assert (await states(worker, machine_id))[1] == ("exited", 3)
    assert worker.record(machine_id).state is State.STARTED


async def test_a_container_that_used_up_its_tries_stays_down(worker: SimWorker, stall: MemoryWorld) -> None:
    job = container("job", "exit 3", restart={"policy": "on-failure", "max_retries": 2})
    machine_id = await started(worker, container("web"), job)
    await stall.clock.sleep(600)
    assert await states(worker, machine_id) == [("running", 1), ("exited", 3)]


async def test_always_starts_also_what_ended_well(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await started(worker, container("job", "sleep 400", restart={"policy": "always"}))
    await stall.clock.sleep(401)
    assert await states(worker, machine_id) == [("running", 2)]


async def test_the_machine_ends_with_the_first_failure_once_all_are_done(worker: SimWorker, stall: MemoryWorld) -> None:
    jobs = [container(f"job{code}", f"sleep {10 - code}; exit {code}", **NEVER) for code in (0, 3, 4)]
    machine_id = await started(worker, *jobs)
    await stall.clock.sleep(8)
    assert worker.record(machine_id).state is State.STARTED
    record = await worker.reaches(machine_id, State.STOPPED)
    assert record.running is not None and record.running.exit is not None
    assert record.running.exit.exit_code == 4
    assert await shown(worker, machine_id) == [(f"job{code}", "stopped") for code in (0, 3, 4)]


async def test_then_the_machines_own_policy_says_what_is_next(worker: SimWorker, stall: MemoryWorld) -> None:
    machine = await worker.create(containers=[container("job", "exit 1", **NEVER)], restart={"policy": "always"})
    await stall.clock.sleep(5)
    events = worker.events(machine.id)
    assert events.count("start/started") >= 2 and events.count("exit/stopped") >= 2


async def test_a_container_that_can_never_start_is_told_once(worker: SimWorker, stall: MemoryWorld) -> None:
    web = container("web", **after("init", "exited_successfully"))
    machine_id = await started(worker, web, container("init", "exit 1", **NEVER), container("log"))
    await stall.clock.sleep(60)
    seen = [event for event in (await worker.get(machine_id)).events if event.type == "container"]
    assert [(event.status, event.error) for event in seen] == [
        ("blocked", "container web is never started: init ended with code 1, not exited successfully"),
        ("exited", "container 'init' exited with status 1 (run 1)"),
    ]
    assert worker.record(machine_id).state is State.STARTED


async def test_an_ailing_container_is_stopped_and_its_policy_applies(worker: SimWorker, stall: MemoryWorld) -> None:
    web = container("web", restart={"policy": "always"}, **check(80, unhealthy="stop", failure_threshold=2))
    machine_id = await started(worker, web)
    await stall.clock.sleep(1)
    stall.prober.answers[80] = BAD
    await stall.clock.sleep(10)
    ended = (await state_of(worker, machine_id, 0)).last_exit
    assert ended is not None and ended.signal == 2
    stall.prober.answers.clear()
    await stall.clock.sleep(5)
    assert await states(worker, machine_id) == [("running", 2)]


async def test_checks_are_shown_under_their_own_names(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.prober.answers[2] = BAD
    machine_id = await started(worker, container("a", **check(1)), container("b", **check(2, failure_threshold=1)))
    await stall.clock.sleep(1)
    checks = [(each.name, each.status, each.output) for each in (await worker.get(machine_id)).checks]
    assert checks == [("up-1", "passing", "Success"), ("up-2", "critical", "refused")]


async def test_a_command_is_a_check_too(worker: SimWorker, stall: MemoryWorld) -> None:
    def asks(command: str) -> dict[str, Any]:
        return {"healthchecks": [{"name": command, "exec": {"command": ["sh", "-c", command]}, "failure_threshold": 1}]}

    machine_id = await started(worker, container("a", **asks("echo fine")), container("b", **asks("exit 7")))
    await stall.clock.sleep(1)
    checks = [(each.status, each.output.strip()) for each in (await worker.get(machine_id)).checks]
    assert checks == [("passing", "fine"), ("critical", "exited with 7")]


async def test_a_container_that_cannot_be_executed_has_failed(worker: SimWorker, stall: MemoryWorld) -> None:
    nope = {"name": "web", "image": "hawker/hello", "exec": ["/nope"], **NEVER}
    machine = await worker.create(containers=[nope], restart={"policy": "no"})
    record = await worker.reaches(machine.id, State.STOPPED)
    assert record.running is not None and record.running.exit is not None
    assert record.running.exit.exit_code == 127 and "/nope" in record.running.exit.reason


# The daemon dies and another one goes on.


async def test_another_daemon_goes_on_where_the_last_one_was(stall: MemoryWorld) -> None:
    web = container("web", **after("init", "exited_successfully"))
    async with stall.open() as worker:
        await worker.app()
        machine_id = await started(worker, web, container("init", "sleep 10"), container("db"))
        await stall.clock.sleep(1)
    stall.crash()
    await stall.clock.sleep(60)
    async with stall.open() as worker:
        await stall.clock.sleep(0.1)
        assert await states(worker, machine_id) == [("running", 1), ("exited", 1), ("running", 1)]


async def test_the_count_of_tries_outlives_the_daemon(stall: MemoryWorld) -> None:
    job = container("job", "exit 3", restart={"policy": "on-failure", "max_retries": 4})
    async with stall.open() as worker:
        await worker.app()
        machine_id = await started(worker, container("web"), job)
        await stall.clock.sleep(2)
        assert (await states(worker, machine_id))[1] == ("exited", 3)
    for _ in range(3):
        stall.crash()
        async with stall.open() as worker:
            await stall.clock.sleep(100)
            assert (await states(worker, machine_id))[1] == ("exited", 5)


async def test_a_blocked_container_is_told_once_whatever_daemon_sees_it(stall: MemoryWorld) -> None:
    web = container("web", **after("init", "exited_successfully"))
    async with stall.open() as worker:
        await worker.app()
        machine_id = await started(worker, web, container("init", "exit 1", **NEVER), container("db"))
        await stall.clock.sleep(1)
    for _ in range(2):
        stall.crash()
        async with stall.open() as worker:
            await stall.clock.sleep(5)
            assert worker.events(machine_id).count("container/blocked") == 1


async def test_a_machine_that_was_done_while_no_daemon_lived_ends(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await started(worker, container("job", "sleep 10; exit 4", **NEVER), container("log", "sleep 20"))
    stall.crash()
    await stall.clock.sleep(60)
    async with stall.open() as worker:
        record = await worker.reaches(machine_id, State.STOPPED)
    assert record.running is not None and record.running.exit is not None
    assert record.running.exit.exit_code == 4


async def test_a_clock_that_is_set_back_delays_no_restart(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await started(worker, container("web"), container("job", "exit 3"))
    await stall.clock.sleep(0.2)
    stall.clock.ahead_s = -3600
    await stall.clock.sleep(0.5)
    assert (await states(worker, machine_id))[1] == ("exited", 2)


@pytest.mark.parametrize("call", ["process_states", "start_process", "await_process_change", "conclude"])
async def test_a_driver_that_fails_for_a_while_is_asked_again(worker: SimWorker, stall: MemoryWorld, call: str) -> None:
    jobs = [container(name, "sleep 1", **NEVER) for name in ("a", "b")]
    stall.host.script(call, *[FakeFault(error=Unavailable("not now"))] * 3)
    machine = await worker.create(containers=jobs, restart={"policy": "no"})
    record = await worker.reaches(machine.id, State.STOPPED)
    assert record.running is not None and record.running.exit is not None
    assert record.running.exit.exit_code == 0


CHECKED = container("web", healthchecks=[{"name": "up", "tcp": {"port": 80}}])


def containers(worker: SimWorker, machine_id: str) -> list[tuple[str, str]]:
    shown = worker.parts.container_supervisors.containers(worker.record(machine_id))
    return [(each.name, each.state) for each in shown]


def checks(worker: SimWorker, machine_id: str) -> list[tuple[str, str]]:
    return [(each.name, each.status) for each in worker.parts.container_supervisors.checks(worker.record(machine_id))]


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


async def test_a_caller_waiting_for_the_machine_hears_of_its_containers(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(containers=[container("web"), container("job", "sleep 5")])
    heard: list[str] = []
    worker.parts.changes.listen(heard.append)
    await stall.clock.sleep(6)
    assert machine_id in heard


async def told(worker: SimWorker, machine_id: str) -> list[str]:
    """What the machine's events say of its containers' ends, oldest first."""
    events = worker.parts.deps.table.events(worker.store, MachineId(machine_id), 1000)
    ended = [event for event in events if (event.type, event.status) == ("container", "exited")]
    return [event.detail.error for event in reversed(ended) if event.detail is not None]


async def test_ends_of_containers_are_events_with_their_codes(worker: SimWorker, stall: MemoryWorld) -> None:
    once = container("once", "exit 0", restart={"policy": "on-failure"})
    job = container("job", "exit 3", restart={"policy": "on-failure", "max_retries": 1})
    machine_id = await started(worker, container("web"), once, job)
    await stall.clock.sleep(60)
    assert sorted(await told(worker, machine_id)) == [
        "container 'job' exited with status 3 (run 1)",
        "container 'job' exited with status 3 (run 2)",
        "container 'once' exited with status 0 (run 1)",
    ]
    status = {each.name: each for each in worker.parts.container_supervisors.containers(worker.record(machine_id))}
    assert (status["job"].restarts, status["job"].exit_code) == (1, 3)
    assert (status["web"].restarts, status["web"].exit_code) == (0, None)


async def test_a_container_that_ends_for_ever_leaves_room_for_other_events(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine_id = await started(worker, container("web"), container("job", "exit 3", restart={"policy": "always"}))
    await stall.clock.sleep(3600)
    assert 10 < len(await told(worker, machine_id)) < 25
