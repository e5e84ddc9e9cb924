"""Health checks of started machines, in virtual time."""

from collections.abc import Awaitable, Callable

import pytest

from hawker.containment import UNFORESEEN
from hawker.ids import MachineId
from hawker.logs.line import HEALTH, KeptLine
from hawker.machine import State
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import MemoryWorld
from hawker.worker.health import Probe, ProbeResult

pytestmark = pytest.mark.anyio
Serve = Callable[[bytes], Awaitable[int]]
BAD = ProbeResult(False, "refused")


def _check(**more: object) -> dict[str, dict[str, object]]:
    return {"web": {"type": "http", "port": 8080, "interval": "10s", "timeout": "2s", "grace_period": "30s", **more}}


async def _status(worker: SimWorker, machine_id: str) -> tuple[str, str]:
    (check,) = (await worker.get(machine_id)).checks
    return check.status, check.output


async def test_a_check_is_a_warning_until_it_was_asked(worker: SimWorker) -> None:
    machine = await worker.create(checks=_check())
    assert [(check.name, check.status) for check in machine.checks] == [("web", "warning")]


async def test_a_passing_check_is_published(worker: SimWorker, stall: MemoryWorld) -> None:
    machine_id = await worker.started(checks=_check(path="/up", headers=[{"name": "Host", "values": ["a"]}]))
    await stall.clock.sleep(0.1)
    assert await _status(worker, machine_id) == ("passing", "Success")
    (probe,) = stall.prober.asked
    assert (probe.port, probe.path, probe.headers, probe.timeout_s) == (8080, "/up", (("Host", "a"),), 2)
    assert probe.host == worker.record(machine_id).network.private_ip


async def test_a_check_that_fails_in_its_grace_period_stays_a_warning(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.prober.answers[8080] = BAD
    machine_id = await worker.started(checks=_check())
    await stall.clock.sleep(29)
    assert (await _status(worker, machine_id))[0] == "warning"
    await stall.clock.sleep(12)
    assert await _status(worker, machine_id) == ("critical", "refused")


async def test_a_check_that_fails_as_nobody_foresaw_is_critical_and_ends_no_other_one(
    stall: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def probe(self: object, asked: Probe) -> ProbeResult:
        if asked.port == 8080:
            raise LookupError("what a machine answered")
        return ProbeResult(True, "Success")

    monkeypatch.setattr(type(stall.prober), "__call__", probe)
    async with stall.open() as worker:
        await worker.app()
        bad = await worker.started(checks=_check(grace_period="0s"))
        good = await worker.started(checks=_check(port=80))
        await stall.clock.sleep(25)
        assert await _status(worker, bad) == ("critical", UNFORESEEN)
        assert (await _status(worker, good))[0] == "passing"


async def test_in_its_grace_period_a_check_is_asked_often(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.prober.answers[8080] = BAD
    machine_id = await worker.started(checks=_check())
    await stall.clock.sleep(5)
    stall.prober.answers.clear()
    await stall.clock.sleep(1.1)
    assert (await _status(worker, machine_id))[0] == "passing"


async def test_the_app_s_log_has_a_line_when_a_check_begins_to_pass_or_to_fail(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    said: list[tuple[str, KeptLine]] = []
    worker.parts.health._say = lambda app, line: said.append((app, line))
    machine_id = await worker.started(checks=_check(grace_period="0s"))
    await stall.clock.sleep(25)
    stall.prober.answers[8080] = ProbeResult(False, "status 500:\n" + "x" * 2000)
    await stall.clock.sleep(25)
    assert {(app, line.machine, line.provider, line.stream) for app, line in said} == {(APP, machine_id, HEALTH, 0)}
    well, ill = (line for _, line in said)
    assert (well.level, well.text) == ("info", "health check 'web' is passing")
    assert ill.level == "error" and ill.text.startswith("health check 'web' is critical: status 500: xxx")
    assert len(ill.text) < 600 and "\n" not in ill.text


async def test_a_failing_check_never_stops_or_restarts_the_machine(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.prober.answers[8080] = BAD
    machine_id = await worker.started(checks=_check())
    before = worker.record(machine_id)
    await stall.clock.sleep(3600)
    assert worker.record(machine_id) == before


async def test_a_change_of_status_wakes_who_waits_for_the_machine(worker: SimWorker, stall: MemoryWorld) -> None:
    stall.prober.answers[8080] = BAD
    machine_id = await worker.started(checks=_check())
    woken: list[MachineId] = []
    worker.parts.changes.listen(woken.append)
    await stall.clock.sleep(100)
    assert woken == [MachineId(machine_id)], "once, for the change to critical"


async def test_checks_end_with_the_instance_and_begin_afresh_with_the_next(
    worker: SimWorker, stall: MemoryWorld
) -> None:
    machine_id = await worker.started(checks=_check())
    await stall.clock.sleep(1)
    await worker.stop(machine_id)
    await worker.reaches(machine_id, State.STOPPED)
    asked = len(stall.prober.asked)
    await stall.clock.sleep(100)
    assert len(stall.prober.asked) == asked
    assert (await _status(worker, machine_id))[0] == "warning"
    await worker.start(machine_id)
    await worker.reaches(machine_id, State.STARTED)
    await stall.clock.sleep(1)
    assert (await _status(worker, machine_id))[0] == "passing"


async def test_checks_are_taken_up_by_the_next_daemon(stall: MemoryWorld) -> None:
    async with stall.open() as worker:
        await worker.app()
        machine_id = await worker.started(checks=_check(type="tcp"))
    stall.prober.asked.clear()
    async with stall.open() as worker:
        await stall.clock.sleep(1)
        assert (await _status(worker, machine_id))[0] == "passing"
    assert stall.prober.asked[0].path is None
