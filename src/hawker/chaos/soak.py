"""A real node under a random mix of calls from several clients, while it is hurt again and again; every few faults all
is left to come to rest, and what is there then is compared with what was promised.

Bounded in time, memory and disk, on loopback only. Whatever happens, all of it is removed at the end: machines, mounts,
directory. A seed deals the same calls and faults in the same order.
"""

import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import chain, repeat
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from hawker.api.contract.app import CREATE_APP, CreateAppRequest
from hawker.api.contract.run import LIST_RUNS, ListRunsQuery, RunState
from hawker.chaos.chance import SeededChance
from hawker.chaos.daemon import Daemon
from hawker.chaos.daemon_supervisor import DaemonSupervisor
from hawker.chaos.data_disk import DataDisk
from hawker.chaos.endings import ToldExits
from hawker.chaos.faults import HURTS, FaultKind, FaultTargets
from hawker.chaos.inspect import inspect, violations_at_rest
from hawker.chaos.report import SoakReport, report_of
from hawker.chaos.scrub import scrub
from hawker.chaos.tally import APP, MeasuredCalls, SoakTally
from hawker.chaos.workload import SoakClient, SoakReader
from hawker.clock import OFFSET_VARIABLE, Clock
from hawker.errors import CannotStart, HawkerError, Unavailable
from hawker.fsm import journal
from hawker.host.residue import pilots
from hawker.proof.promises import Promises
from hawker.value_object import ValueObject

CUSTOMERS = 4
GROUND_MIB = 384
_FLAGS = (
    *(
        "--free-disk-floor-mib",
        "0",
        "--disk-mib",
        "100000",
        "--machine-disk-mib",
        "256",
    ),  # so that a full disk is met by flows, not by admission
    *("--logs-mib", "1", "--reconcile-every-s", "5"),
)
_BEFORE_REST = 4
_RESTS_WITHIN_S = 120.0
_OPEN = (RunState.ACTIVE, RunState.QUEUED, RunState.STUCK)


class SoakPlan(ValueObject, frozen=True):
    """`grounded`: the data directory gets a filesystem of its own, which needs root. `logs`: where to leave what each
    life of the daemon wrote."""

    minutes: float
    """How long calls and faults are made."""
    seed: int
    """By which calls and faults are drawn."""
    driver: str
    """The one that runs machines."""
    grounded: bool
    logs: Path | None = None


def plan_of(minutes: float, seed: int, driver: str | None, *, root: bool, logs: Path | None = None) -> SoakPlan:
    """Raises `CannotStart` when the driver is not for whoever asks."""
    if driver == "container" and not root:
        raise CannotStart("the container driver needs root: start as root, or choose --driver process")
    chosen = driver or ("container" if root else "process")
    return SoakPlan(minutes=minutes, seed=seed, driver=chosen, grounded=root, logs=logs)


class Soak:
    """One node, its clients and what hurts it."""

    def __init__(self, plan: SoakPlan, daemon: Daemon, data_disk: DataDisk | None, clock: Clock) -> None:
        self._plan = plan
        self._clock = clock
        self.tally = SoakTally()
        self._supervisor = DaemonSupervisor(daemon, clock, self.tally)
        self._promises = Promises()
        networked = plan.driver == "container"
        chances = (SeededChance(plan.seed, stream) for stream in range(1, CUSTOMERS + 4))
        self._endings = ToldExits(daemon.place.machines, next(chances), networked=networked)
        offset = daemon.directory / "clock-offset"
        daemon.environment[OFFSET_VARIABLE] = str(offset)
        self._targets = FaultTargets(self._supervisor, data_disk, self._endings, offset, next(chances), clock)
        self._calls = MeasuredCalls(self._supervisor, clock, self.tally)
        self._onlooker = SoakReader(self._calls, self._promises, next(chances))
        self._customers = [
            SoakClient(f"customer{number}", self._calls, self._promises, self._endings, chance, networked=networked)
            for number, chance in enumerate(chances)
        ]

    async def begin(self) -> None:
        """Raises `CannotStart` when the node cannot even boot unharmed."""
        try:
            await self._supervisor.start()
            await self._supervisor.client.call(CREATE_APP, body=CreateAppRequest(name=APP, org_slug="chaos"))
        except HawkerError as error:
            raise CannotStart(str(error)) from error
        assert self._supervisor.daemon.node_id, "which is known from now on, also when no later life gets ready"

    async def run(self) -> None:
        ends_at = self._clock.monotonic() + self._plan.minutes * 60
        deck = self._deck()
        try:
            while self._clock.monotonic() < ends_at:
                await self._open_hours(deck, ends_at)
                await self._rest()
        except Unavailable as error:
            self._supervisor.note(f"the soak cannot go on: {error}")

    def _deck(self) -> Iterator[FaultKind]:
        """Every fault once, shuffled, and again."""
        offered = [hurt for hurt in HURTS if self._targets.data_disk is not None or not hurt.grounded]
        return chain.from_iterable(self._targets.chance.shuffled(offered) for _ in repeat(None))

    async def _open_hours(self, deck: Iterator[FaultKind], ends_at: float) -> None:
        """Clients call, and a few faults are inflicted."""
        async with self._clients():
            for _ in range(_BEFORE_REST):
                await self._targets.while_it_lasts(0.5, 3)
                if self._clock.monotonic() > ends_at:
                    break
                await self._inflict(next(deck))

    async def _inflict(self, hurt: FaultKind) -> None:
        self.tally.faults[hurt.name] += 1
        try:
            await hurt.inflict(self._targets)
        except HawkerError as error:
            self._supervisor.note(f"{hurt.name}: {error}")
            with suppress(Unavailable):
                await self._supervisor.start()
        seconds = await self._supervisor.answering()
        self.tally.recoveries_ms[hurt.name].append(seconds * 1000)

    @asynccontextmanager
    async def _clients(self) -> AsyncIterator[None]:
        closed = anyio.Event()
        async with anyio.create_task_group() as watchers:
            watchers.start_soon(self._supervisor.watch)
            async with anyio.create_task_group() as clients:
                for customer in self._customers:
                    clients.start_soon(customer.shop, closed, self._clock)
                clients.start_soon(self._onlooker.look, closed, self._clock)
                try:
                    yield
                finally:
                    closed.set()
            watchers.cancel_scope.cancel()

    async def _rest(self) -> None:
        """Let everything end that was begun, and compare."""
        began = self._clock.monotonic()
        await self._quiet()
        self.tally.rests_s.append(self._clock.monotonic() - began)
        try:
            await self._supervisor.stop()
        except Unavailable as error:
            self._supervisor.note(f"stopping: {error}")
        await self._compare()
        if self._plan.logs is None:
            self._forget_logs()
        await self._supervisor.start()

    def _forget_logs(self) -> None:
        """Removes the logs of all lives but the last: hours of them would fill the host's disk."""
        written = sorted(self._supervisor.daemon.directory.glob("life-*.err"), key=lambda file: file.stat().st_mtime)
        for file in written[:-1]:
            file.unlink()

    async def _quiet(self) -> None:
        with anyio.move_on_after(_RESTS_WITHIN_S) as scope:
            while (left := await self._open_runs()) is None or left:
                await self._clock.sleep(0.1)
        if scope.cancelled_caught:
            self._supervisor.note(f"does not come to rest: {await self._open_runs()}")

    async def _open_runs(self) -> list[str] | None:
        """None when it cannot be asked."""
        with suppress(HawkerError):
            found = await self._supervisor.client.call(LIST_RUNS, query=ListRunsQuery(state=_OPEN))
            return [f"{run.flow} of {run.resource_id} at {run.step}: {run.state} {run.error}" for run in found.runs]
        return None

    async def _compare(self) -> None:
        daemon = self._supervisor.daemon
        found = [str(violation) for violation in await violations_at_rest(daemon, self._clock)]
        async with inspect(daemon, self._clock) as seen:
            between_tries = {run.resource.id for run in journal.open_runs(seen.reader)}
            broken = self._promises.broken(seen.reader)
            found += [str(violation) for violation in broken if violation.about not in between_tries]
            found += self._endings.unrecorded(seen.reader)
        for what in found:
            self._supervisor.note(what)

    async def withdraw(self) -> None:
        """Destroy what is left. What is left all the same is noted and removed."""
        daemon = self._supervisor.daemon
        try:
            strays = await run_sync(daemon.withdraw)
        except HawkerError as error:
            strays = [f"all of it, because it cannot be withdrawn: {error}"]
        strays += [f"{count} pilots of {machine_id}" for machine_id, count in pilots(daemon.place.machines).items()]
        for stray in strays:
            self._supervisor.note(f"left on the host: {stray}")
        await self._supervisor.cut()
        if strays and self.tally.boots_ms:
            await scrub(daemon, self._clock)


async def soak(plan: SoakPlan, clock: Clock) -> SoakReport:
    """SIGINT and SIGTERM end it early, in the same order, with a report of what was done until then. Raises
    `CannotStart` when this host cannot run it."""
    began = clock.monotonic()
    tally = await _counted(plan, clock)
    lasted_s = clock.monotonic() - began
    return report_of(tally, seed=plan.seed, driver=plan.driver, minutes=plan.minutes, lasted_s=lasted_s)


async def _counted(plan: SoakPlan, clock: Clock) -> SoakTally:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        directory = Path(tempfile.mkdtemp(prefix="hawker-soak-"))
        data_disk = DataDisk(directory / "ground.img", directory / "data") if plan.grounded else None
        try:
            if data_disk is not None:
                await run_sync(data_disk.make, GROUND_MIB)
            running = Soak(plan, Daemon(directory, clock, *_FLAGS, driver=plan.driver), data_disk, clock)
            await _perform(running, signals)
            return running.tally
        finally:
            if data_disk is not None:
                data_disk.remove()
            if plan.logs is not None:
                _copy_logs(directory, plan.logs)
            shutil.rmtree(directory)


def _copy_logs(directory: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for file in directory.glob("life-*.err"):
        shutil.copy(file, target)


async def _perform(running: Soak, signals: AsyncIterator[signal.Signals]) -> None:
    try:
        await running.begin()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_when_told, signals, tasks.cancel_scope)
            await running.run()
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await running.withdraw()


async def _end_when_told(signals: AsyncIterator[signal.Signals], scope: anyio.CancelScope) -> None:
    await anext(signals)
    scope.cancel()
