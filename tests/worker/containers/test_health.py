from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from hawker.config.effective import Healthcheck
from hawker.config.machine import TcpHealthcheck
from hawker.sim.harness.loop import LoopClock
from hawker.worker.containers.health import Watch
from hawker.worker.health import ProbeResult

pytestmark = pytest.mark.anyio


def check(name: str, *, stops: bool = False, grace_s: float = 0.0) -> Healthcheck:
    return Healthcheck("web", name, 5.0, 1.0, grace_s, 1, 2, stops, TcpHealthcheck(port=80))


class Patient:
    """Answers as told; counts what turned."""

    def __init__(self, *checks: Healthcheck) -> None:
        self.clock = LoopClock(0)
        self.well = True
        self.asked: list[tuple[str, float]] = []
        self.turns = 0
        self.watch = Watch(checks, self.clock, self._answer, self._turned)

    async def _answer(self, check: Healthcheck) -> ProbeResult:
        self.asked.append((check.name, round(self.clock.monotonic(), 3)))
        await anyio.lowlevel.checkpoint()
        return ProbeResult(self.well, "well" if self.well else "ill")

    def _turned(self) -> None:
        self.turns += 1

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.watch.serve)
            yield
            tasks.cancel_scope.cancel()

    def statuses(self) -> list[tuple[str, str, str]]:
        return [(each.name, each.status, each.output) for each in self.watch.results()]


async def test_a_check_is_a_warning_until_it_was_asked() -> None:
    patient = Patient(check("up"))
    assert patient.statuses() == [("up", "warning", "not checked yet")]
    assert not patient.watch.healthy and not patient.watch.ailing


async def test_a_check_is_not_asked_in_its_grace_period_and_then_in_its_interval() -> None:
    patient = Patient(check("up", grace_s=3))
    began = patient.clock.monotonic()
    async with patient.watched():
        await patient.clock.sleep(9)
    assert [round(at - began, 1) for _, at in patient.asked] == [3.0, 8.0]
    assert patient.statuses() == [("up", "passing", "well")]
    assert patient.turns == 1


async def test_healthy_is_when_all_pass() -> None:
    patient = Patient(check("up"), check("late", grace_s=4))
    async with patient.watched():
        await patient.clock.sleep(1)
        assert not patient.watch.healthy
        await patient.clock.sleep(4)
        assert patient.watch.healthy


@pytest.mark.parametrize("stops", [True, False])
async def test_ailing_is_only_when_a_critical_check_is_to_stop_it(stops: bool) -> None:
    patient = Patient(check("up", stops=stops))
    patient.well = False
    async with patient.watched():
        await patient.clock.sleep(1)
        assert not patient.watch.ailing
        await patient.clock.sleep(5)
    assert patient.watch.ailing is stops
    assert patient.statuses() == [("up", "critical", "ill")]
