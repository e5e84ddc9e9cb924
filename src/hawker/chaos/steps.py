"""`hawker chaos steps`: a daemon dies at every place of every flow, before, inside and after each step.

Everything is on loopback and in one directory of its own, which is removed at the end with all that was on the host.
"""

import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
from anyio.to_thread import run_sync

from hawker.chaos.daemon import Daemon
from hawker.chaos.guests import CONTAINED, GUEST_DRIVERS, bring_kernels
from hawker.chaos.kill_runner import KillOutcome, KillRunner
from hawker.chaos.scenario_context import SampleMachines, write_commandless_image
from hawker.chaos.scenarios import BETWEEN_NODES, SCENARIOS, Scenario, unmet
from hawker.chaos.scrub import scrub
from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.up.wiring import NODE_FLOWS

_FLAGS = (
    "--shared-cpu-ratio",
    "64",
    "--memory-mib",
    "65536",
    "--disk-mib",
    "262144",
    "--machine-disk-mib",
    "256",
    "--free-disk-floor-mib",
    "0",
    "--deleted-volumes-kept-s",
    "0",
)
_BEFORE, _AFTER = frozenset({"before", "undo"}), frozenset({"after", "undone"})


class DeathRow(msgspec.Struct, frozen=True, kw_only=True):
    """One death. `where` is before, inside or after; `point` names the place inside. `recovered_ms` is from the start
    of the next daemon to the end of the operation; None when that one died as well, at the place of the next row."""

    scenario: str
    """Its name."""
    flow: str
    """That of the run in which it was."""
    step: str
    """The one at which it was."""
    where: str
    point: str
    recovered_ms: float | None
    findings: tuple[str, ...]
    """What must not be, for people; none is good."""


class StepsReport(msgspec.Struct, frozen=True, kw_only=True):
    """`rows` are the deaths, `findings` what belongs to none of them."""

    driver: str
    """The one that ran machines."""
    seconds: float
    """How long all of it took."""
    rows: tuple[DeathRow, ...]
    findings: tuple[str, ...]

    @property
    def found(self) -> int:
        return sum(len(row.findings) for row in self.rows) + len(self.findings)


class StepsPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`flow` None is all of them. `in_a_row`: whoever takes over dies too, at the next place, and so on. `where` is a
    directory for the node; None makes one and removes it. `kernels` has been imported for guests; None: where a node
    of this host has its own. `launcher` is the setting, which says who starts containers."""

    driver: str | None = None
    """The one that runs machines; None: as a node of this host chooses."""
    launcher: str = "auto"
    flow: str | None = None
    in_a_row: bool = False
    where: Path | None = None
    kernels: Path | None = None

    def scenarios(self) -> tuple[Scenario, ...]:
        return tuple(scenario for scenario in SCENARIOS if self.flow in (None, scenario.flow))


FLOW_NAMES = tuple(flow.name for flow in NODE_FLOWS if flow.name not in BETWEEN_NODES)


async def run_steps(plan: StepsPlan, clock: Clock, tell: Callable[[DeathRow], None]) -> StepsReport:
    """Each row is told as soon as it is known. Raises `HawkerError` when the node cannot be had at all."""
    began, rows, findings, met = clock.monotonic(), list[DeathRow](), list[str](), set[str]()

    def note(scenario: Scenario, outcome: KillOutcome) -> None:
        for row in rows_of(scenario, outcome):
            rows.append(row)
            tell(row)

    async with killable_node(plan, clock, findings) as kill_runner:
        for scenario in plan.scenarios():
            if scenario.contained and kill_runner.driver not in CONTAINED:
                continue
            rehearsal = await kill_runner.rehearse(scenario)
            findings += [f"{scenario.name}, undisturbed: {what}" for what in rehearsal.findings]
            met.update(rehearsal.places)
            async for outcome in deaths(kill_runner, scenario, rehearsal.places, in_a_row=plan.in_a_row):
                note(scenario, outcome)
        driver = kill_runner.driver
        if plan.flow is None and driver == "container":
            findings += [f"no scenario comes by {place}" for place in unmet(frozenset(met))]
    return StepsReport(driver=driver, seconds=clock.monotonic() - began, rows=tuple(rows), findings=tuple(findings))


async def deaths(
    kill_runner: KillRunner, scenario: Scenario, places: Sequence[str], *, in_a_row: bool
) -> AsyncIterator[KillOutcome]:
    """At each of these places once."""
    left = list(places)
    while left:
        outcome = await (
            kill_runner.strike_in_a_row(scenario, left) if in_a_row else kill_runner.strike(scenario, left[0])
        )
        yield outcome
        left = [place for place in left if place not in outcome.places]


@asynccontextmanager
async def killable_node(plan: StepsPlan, clock: Clock, findings: list[str]) -> AsyncIterator[KillRunner]:
    """A node that was up once and is stopped; at the end it is gone. `findings` hears of what is left of it then."""
    with tempfile.TemporaryDirectory(prefix="hawker-chaos-", dir=plan.where, ignore_cleanup_errors=True) as made:
        directory = Path(made)
        daemon = Daemon(directory, clock, *_FLAGS, "--launcher", plan.launcher, driver=plan.driver)
        if daemon.driver in GUEST_DRIVERS:
            bring_kernels(daemon.place, plan.kernels)
        samples = SampleMachines(daemon.driver, write_commandless_image(directory / "image"), directory / "archive")
        try:
            await run_sync(daemon.start)
            await run_sync(daemon.stop)
            yield KillRunner(daemon, samples, clock)
        finally:
            with anyio.CancelScope(shield=True):
                findings += await _withdrawn(daemon, clock)


async def _withdrawn(daemon: Daemon, clock: Clock) -> list[str]:
    """What a node left behind; it is cleaned up after. So is one that cannot even be started to clean up."""
    try:
        found = [f"left on the host: {trace}" for trace in await run_sync(daemon.withdraw)]
    except HawkerError as error:
        found = [f"the node could not be withdrawn: {error}"]
    if found:
        await scrub(daemon, clock)
    return found


def rows_of(scenario: Scenario, outcome: KillOutcome) -> list[DeathRow]:
    """One for each place; what was found is said with the last one."""
    rows = [_row(scenario, place, None, ()) for place in outcome.places[:-1]]
    return [*rows, _row(scenario, outcome.places[-1], outcome.recovered_ms, outcome.findings)]


def _row(scenario: Scenario, place: str, recovered_ms: float | None, findings: tuple[str, ...]) -> DeathRow:
    flow, step, *rest = place.split(".")
    point = rest[-1]
    undoing = rest[0] in ("undo", "undone")
    where = "before" if point in _BEFORE else "after" if point in _AFTER else "inside"
    return DeathRow(
        scenario=scenario.name,
        flow=flow,
        step=f"{step} (undo)" if undoing else step,
        where=where,
        point=point if where == "inside" else "",
        recovered_ms=recovered_ms,
        findings=findings,
    )
