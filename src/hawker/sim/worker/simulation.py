"""One run: a plan played to its end in virtual time, and what was found in it.

Clients and nature go on while daemons come and go; once all operations are done nature rests, the worker must come to
rest, and everything is looked at, in the life that is and in one more.
"""

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup
from msgspec.structs import replace

from hawker.errors import HawkerError
from hawker.fsm.run import State
from hawker.ids import MachineId
from hawker.proof import invariants
from hawker.proof.invariants import policies_at_rest
from hawker.proof.violation import Invariant, Violation
from hawker.record.machine import DESTROYED, EVENTS, MACHINES
from hawker.record.node import USED
from hawker.sim.harness.plan import NATURE, RunOutcome, only_option
from hawker.sim.harness.seeded_run import SeededGame, SeededRun
from hawker.sim.harness.trace import Speaker, Trace
from hawker.sim.node.crash_points import Death
from hawker.sim.node.fake_host import FakeRegistry
from hawker.sim.node.faulty_store import CrashableFile, CrashableMemory, CrashableStore, DiskFaults, FaultyStore
from hawker.sim.node.kit import SOUND, WorkerKit
from hawker.sim.node.sim_worker import SimWorker
from hawker.sim.node.world import VirtualWorld
from hawker.sim.worker.client import ClientGate, WorkerClient, WorkerLedger
from hawker.sim.worker.faults import WorkerFaults
from hawker.sim.worker.plan import CLIENTS, MINUTES, WorkerPlan
from hawker.store.memory_store import MemoryStore

_QUIET_S = 120.0  # longer than any backoff
_BOOT_S = 2.0
_LOOK_S = 1.0
_AFTER_S = 10.0  # after the last operation, for what it has set off
_LIVES_MAX = 1000
_TOLD_BY = frozenset({bucket.name for bucket in (MACHINES, DESTROYED, EVENTS, USED)})


class WorkerOutcome(RunOutcome[WorkerPlan], frozen=True, kw_only=True):
    """`lives` of the daemon; `crashes` are those that ended with a kill."""

    lives: int
    crashes: int
    faults: int


class WorkerSimulation(SeededRun[WorkerPlan, WorkerOutcome]):
    """`keeps`: also the lines of the trace that no story needs."""

    who = "the daemon"

    def __init__(self, plan: WorkerPlan, kit: WorkerKit, *, keeps: bool = False) -> None:
        self._crashable: CrashableStore = CrashableMemory()
        self._disk_faults = DiskFaults()
        self._world = VirtualWorld(
            MemoryStore(),
            Path("node"),
            seed=plan.seed,
            room=plan.room,
            reconciles=plan.reconciles,
            kit=kit,
            guests=plan.guests,
            nameservers=("fdaa::3",),
        )
        self._world.registry = FakeRegistry()
        self._scope = anyio.CancelScope()
        self._ledger = WorkerLedger(self._world.clock, Trace(keeps), self._scope.cancel)
        super().__init__(plan, self._world.clock, self._ledger)
        self._nature = WorkerFaults(self._world, self._disk_faults, self._world.registry, self._ledger)
        self._gate = ClientGate()
        self._lives = self._crashes = 0
        self._over = False

    async def _run(self, tasks: TaskGroup) -> None:
        """To the end, or until something is found."""
        if self._plan.on_file:
            file = CrashableFile(self._folder())
            self._goes.callback(file.close)
            self._crashable = file
        with self._scope:
            await self._do()

    async def _do(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._live)
            async with anyio.create_task_group() as actors:
                for name in CLIENTS:
                    client = WorkerClient(name, self._gate, self._ledger, self._clock)
                    actors.start_soon(client.work, self._plan.of(name))
                actors.start_soon(self._nature.rage, self._plan.of(NATURE))
            await self._clock.sleep(_AFTER_S)
            self._nature.rest()
            self._over = True
            self._nature.terminated.set()

    # Lives of the daemon.

    async def _live(self) -> None:
        while not self._over:
            await self._one_life()
            await self._between()
        await self._last_look()

    async def _one_life(self) -> None:
        self._lives += 1
        if self._lives > _LIVES_MAX:
            self._ledger.find([Violation(Invariant.ANSWERS, "the daemon", "does not come up any more")])
            await anyio.lowlevel.checkpoint()
        try:
            self._world.store = FaultyStore(
                self._crashable.store, self._clock, self._ledger.trace, self._disk_faults, self._touch
            )
            async with self._world.open() as worker:
                worker.tasks.start_soon(self._die_in_turn)
                await self._welcome(worker)
                if not self._over:
                    await self._nature.terminated.wait()
                if self._over:
                    await self._look_at_rest(worker)
            self._ledger.say(Speaker.DAEMON, "stops")
        except Death:
            self._crashes += 1
            self._ledger.say(Speaker.DAEMON, "is dead")
        except HawkerError as error:
            self._ledger.say(Speaker.DAEMON, f"cannot start: {error}")
        except Exception as error:  # noqa: BLE001 - whatever breaks the worker is a finding
            self._ledger.find([Violation(Invariant.ANSWERS, "the daemon", f"broke: {type(error).__name__}: {error}")])
        finally:
            self._gate.shut()

    def _touch(self, key: str) -> None:
        bucket, _, rest = key.removeprefix("-").partition("/")
        if bucket in _TOLD_BY:
            self._ledger.touched.add(MachineId(rest.partition("/")[0]))

    async def _welcome(self, worker: SimWorker) -> None:
        while True:
            try:
                await worker.app()
                await worker.policy()
            except HawkerError:
                await self._clock.sleep(_BOOT_S)
            else:
                break
        self._ledger.say(Speaker.DAEMON, f"is up, in its life {self._lives}")
        self._ledger.check(worker.store)
        self._gate.open(worker)

    async def _die_in_turn(self) -> None:
        """Kills the daemon after so many turns of the loop, wherever everything is then."""
        await self._nature.counted.wait()
        for _ in range(self._nature.turns_left):
            await anyio.lowlevel.checkpoint()
        if self._nature.counted.is_set():
            raise Death

    async def _between(self) -> None:
        cause = self._nature.aftermath()
        kept, reboots, down_s = (1.0, False, _BOOT_S) if cause is None else (cause.kept, cause.reboots, cause.down_s)
        if reboots:
            self._world.reboot()
        if cause is not None and (kept < 1 or reboots):
            what = "the host is rebooted" if reboots else "the file system loses what was not synced"
            self._ledger.say(Speaker.NATURE, f"{what}; {kept:.0%} of the commits that were not durable are kept")
        self._crashable.crash(kept)
        await self._clock.sleep(0.0 if self._over else down_s)

    # The end.

    async def _last_look(self) -> None:
        """In one more life, which has only what is on the disk."""
        if not self._ledger.found:
            await self._one_life()

    async def _look_at_rest(self, worker: SimWorker) -> None:
        if not self._ledger.found:
            try:
                await self._retry_parked(worker)
                await worker.at_rest(_LOOK_S)
                await self._clock.sleep(_QUIET_S)
                await worker.at_rest(_LOOK_S)
            except TimeoutError:
                self._ledger.find([Violation(Invariant.ANSWERS, "the worker", "does not come to rest")])
            with worker.store.snapshot() as reader:
                broken = [*self._ledger.promises.broken(reader), *self._ledger.volume_promises.broken(reader)]
                broken += self._ledger.snapshot_promises.broken(reader, self._clock.now())
                self._ledger.find([*broken, *invariants.at_rest(reader, self._world.seen())])
                if self._plan.reconciles:
                    self._ledger.find(list(policies_at_rest(reader, self._world.policies.standing)))

    async def _retry_parked(self, worker: SimWorker) -> None:
        """Retries a run that daemon after daemon died at, as an operator does when none dies any more."""
        for run in worker.parts.runner.list(active=True):
            if run.state is State.STUCK and run.note.startswith("the daemon ended"):
                self._ledger.say(Speaker.CLIENT, f"an operator retries a run of {run.flow}: {run.note}")
                await worker.parts.runner.retry(run.run_id)

    def _outcome(self, told: dict[str, Any]) -> WorkerOutcome:
        return WorkerOutcome(
            **told,
            operations=self._ledger.operations,
            lives=self._lives,
            crashes=self._crashes,
            faults=self._nature.faults,
        )


GAME: SeededGame[WorkerKit, WorkerPlan, WorkerOutcome] = SeededGame(sound=SOUND, run=WorkerSimulation)
play, shrink = GAME.play, GAME.shrink
play_and_keep = replace(GAME, run=partial(WorkerSimulation, keeps=True)).play
"""With every line of the trace, also those that no story needs."""


# What is said of a run of the simulated worker: one line, one value for programs, and the command that repeats it.


class ReportedFinding(msgspec.Struct, frozen=True, kw_only=True):
    invariant: str
    """The one that did not hold."""
    about: str
    """The id of what it did not hold for."""
    what: str
    """For people: what was seen."""


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """`virtual_s` is how long the run took in its own time; `again` the command that repeats it."""

    seed: int
    """The run's."""
    operations: int
    """Calls of clients that were answered."""
    lives: int
    """Of the daemon, 1 or more."""
    crashes: int
    """Lives that ended with a kill."""
    faults: int
    """How many were made of the world."""
    virtual_s: float
    digest: str
    """Of all that happened: the same for the same seed and code."""
    found: tuple[ReportedFinding, ...]
    again: str


def report_of(outcome: WorkerOutcome, again: str) -> WorkerReport:
    return WorkerReport(
        seed=outcome.plan.seed,
        operations=outcome.operations,
        lives=outcome.lives,
        crashes=outcome.crashes,
        faults=outcome.faults,
        virtual_s=round(outcome.ended_at, 6),
        digest=outcome.digest,
        found=tuple(
            ReportedFinding(invariant=each.invariant.value, about=each.about, what=each.what) for each in outcome.found
        ),
        again=again,
    )


def summary(outcome: WorkerOutcome) -> str:
    """One line. Times are virtual."""
    minutes, seconds = divmod(int(outcome.ended_at), 60)
    verdict = f"{len(outcome.found)} findings: {outcome.found[0].invariant.value}" if outcome.found else "nothing found"
    return (
        f"seed {outcome.plan.seed}: {outcome.operations} operations, {outcome.crashes} crashes, "
        f"{outcome.faults} faults, {minutes}m{seconds:02d}s, digest {outcome.digest}, {verdict}"
    )


def repeat(outcome: WorkerOutcome, minutes: float, plant: str | None, *, whole: bool) -> str:
    """The command that plays this run once more."""
    words = ["hawker sim", f"--seed {outcome.plan.seed}"]
    words += [f"--minutes {minutes:g}"] if minutes != MINUTES else []
    words += [f"--plant {plant}"] if plant else []
    words += [] if whole else [only_option(outcome)]
    return " ".join(words)
