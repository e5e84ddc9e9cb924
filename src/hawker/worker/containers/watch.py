"""The checks of one run of one container: asked in their time, their answers in memory, gone with the run."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import anyio

from hawker.clock import Clock
from hawker.config.effective_containers import Healthcheck
from hawker.worker.containers.tally import Tally
from hawker.worker.health import CheckResult
from hawker.worker.probe import Finding

Ask = Callable[[Healthcheck], Awaitable[Finding]]


@dataclass(frozen=True, slots=True)
class _State:
    tally: Tally
    output: str
    at: float


class Watch:
    """`turned` is called when a check has come to another status."""

    def __init__(self, checks: Sequence[Healthcheck], clock: Clock, ask: Ask, turned: Callable[[], None]) -> None:
        self._checks = checks
        self._clock = clock
        self._ask = ask
        self._turned = turned
        self._states = {each.name: _State(Tally(), "not checked yet", clock.now()) for each in checks}

    async def serve(self) -> None:
        """Ask until cancelled."""
        async with anyio.create_task_group() as tasks:
            for check in self._checks:
                tasks.start_soon(self._check, check)

    def results(self) -> tuple[CheckResult, ...]:
        """In the config's order."""
        return tuple(CheckResult(name, it.tally.status, it.output, it.at) for name, it in self._states.items())

    @property
    def healthy(self) -> bool:
        """Whether all of its checks pass."""
        return all(state.tally.passing for state in self._states.values())

    @property
    def ailing(self) -> bool:
        """Whether one that is to stop the container is critical."""
        return any(each.stops and self._states[each.name].tally.passing is False for each in self._checks)

    async def _check(self, check: Healthcheck) -> None:
        await self._clock.sleep(check.grace_s)
        while True:
            finding = await self._ask(check)
            before = self._states[check.name]
            tally = before.tally.counted(check, finding.passing)
            self._states[check.name] = _State(tally, finding.output, self._clock.now())
            if tally.status != before.tally.status:
                self._turned()
            await self._clock.sleep(check.interval_s)
