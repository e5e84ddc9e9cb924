"""One run from wherever it is to its end: the loop that calls its steps and has what they come to recorded.

Each unended run has one `Drive`, in one task. What others do to the run (cancel, its turn, a retry) they write to the
store and then `poke`; the drive stops what it is doing and looks again. All else it decides from the run's record.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import Any, Final, Generic, TypeVar

import anyio
import msgspec
from anyio import CancelScope

from hawker.clock import Clock
from hawker.errors import DeadlineExceeded, Unavailable
from hawker.failpoint import enter, inside, reach
from hawker.fair.threads import on_behalf_of, whose
from hawker.fair.turns import Turns
from hawker.fsm import journal, transition
from hawker.fsm.context import Context
from hawker.fsm.contract import Backoff, Ending, Flow, Resource, Step
from hawker.fsm.ledger import CommitFailed, EndFailed, Ledger
from hawker.fsm.observer import RunLog
from hawker.fsm.run import ENDED, Run, State, StepRecord, StepStatus, error_of, fault_of
from hawker.fsm.transition import Event, Parked, StopAsked, Verdict
from hawker.ids import RunId
from hawker.store.contract import Durability, Store, Tx
from hawker.value_object import ValueObject

T = TypeVar("T")

STORE_BACKOFF: Final = Backoff(first_s=0.05, cap_s=5.0)  # its `attempts` do not count here


# What a drive writes: attempts and events, each in one transaction, for as long as it takes. Invariant: what has
# happened is recorded before the run goes on. A full disk makes a run wait, never fail. A `commit` that raises
# fails the attempt; an `on_end` that raises parks the run, with nothing undone.


class Recorder:
    def __init__(self, store: Store, ledger: Ledger, clock: Clock, log: RunLog) -> None:
        self._store = store
        self._ledger = ledger
        self._clock = clock
        self._log = log

    async def attempt(self, run: Run, found: Verdict, started_at: float, durable: bool) -> tuple[Run, StepRecord]:
        """The run after an attempt, and the attempt's line of history. Durable as well: what did not succeed, since
        once an undo has begun, the step must not get another chance; and a hand-off, since it accepts a run."""
        if found.late and not durable and found.event is not None and self._ledger.may_be_late(run):
            record = self._line(run, found, started_at)
            return self._ledger.step_late(run, found.event, record), record
        durable = durable or found.outcome in (StepStatus.RETRY, StepStatus.FAILED, StepStatus.HANDED_OFF)
        durability = Durability.DURABLE if durable else Durability.ORDERED
        try:
            return await self._attempt(run, found, started_at, durability)
        except CommitFailed as failure:
            error = failure.__cause__ or failure
            self._log.say(run, logging.WARNING, "commit raised", error)
            undoing, jitter = run.state is State.UNDOING, self._clock.random()
            instead = transition.of_undo(error, jitter) if undoing else transition.of_error(error, jitter)
        return await self._attempt(run, instead, started_at, Durability.DURABLE)

    async def post(self, run: Run, event: Event) -> Run:
        return await self._or_park(run, partial(self._ledger.post, run_id=run.id, event=event), Durability.DURABLE)

    async def due(self, run: Run) -> Run:
        return await self._or_park(run, partial(self._ledger.due, run_id=run.id))

    async def _attempt(
        self, run: Run, found: Verdict, started_at: float, durability: Durability
    ) -> tuple[Run, StepRecord]:
        record = self._line(run, found, started_at)

        def apply(tx: Tx) -> Run:
            if found.hand_off is not None:
                return self._ledger.hand_off(tx, run.id, found.hand_off, record)
            assert found.event is not None
            return self._ledger.step(tx, run.id, found.event, record, found.commit)

        return await self._or_park(run, apply, durability), record

    async def _or_park(self, run: Run, apply: Callable[[Tx], Run], durability: Durability = Durability.ORDERED) -> Run:
        try:
            return await self._write(run, apply, durability)
        except EndFailed as failure:
            error = failure.__cause__ or failure
            self._log.say(run, logging.WARNING, "on_end raised", error)
        park = partial(self._ledger.post, run_id=run.id, event=Parked(fault_of(error).text))
        return await self._write(run, park, Durability.ORDERED)

    async def _write(self, run: Run, apply: Callable[[Tx], T], durability: Durability) -> T:
        tries = 0
        while True:
            try:
                return await self._store.write(apply, durability)
            except Unavailable as error:
                tries += 1
                self._log.say(run, logging.ERROR, "run cannot be recorded yet", reason=str(error))
            await self._clock.sleep(STORE_BACKOFF.wait_s(tries, self._clock.random()))

    def _line(self, run: Run, found: Verdict, started_at: float) -> StepRecord:
        return StepRecord(
            step=run.step,
            attempt=run.attempt,
            outcome=found.outcome,
            started_at=started_at,
            ended_at=self._clock.now(),
            fault=found.fault,
            result=found.result,
        )


D = TypeVar("D")


class Engine(ValueObject, Generic[D], frozen=True):
    """The parts that all drives of a runner share. `settled` waits until a run has ended, `owner_of` says in whose
    share the work of a run counts."""

    store: Store
    ledger: Ledger
    recorder: Recorder
    flows: dict[str, Flow[Any]]
    deps: D
    clock: Clock
    queues: dict[str, Turns]
    settled: Callable[[RunId], Awaitable[Run]]
    log: RunLog
    owner_of: Callable[[Run], str]


class Drive(Generic[D]):
    def __init__(self, engine: Engine[D], run: Run) -> None:
        self._engine = engine
        self._run = run
        self._results: dict[str, bytes] = {}
        self._scope: CancelScope | None = None
        self._poked = False
        self.waiting_for = ""

    def poke(self) -> None:
        """The run's record was changed by someone else."""
        self._poked = True
        if self._scope is not None:
            self._scope.cancel()

    async def run(self) -> None:
        with on_behalf_of(self._engine.owner_of(self._run)):
            await self._run_to_end()

    async def _run_to_end(self) -> None:
        if self._run.records > 0:
            for record in journal.history(self._engine.store, self._run.id):
                self._note(record)
        while self._run.state not in ENDED:
            if self._poked:
                self._poked = False
                self._run = self._engine.ledger.find(self._engine.store, self._run.id) or self._run
            else:
                await self._advance()
        error = None if self._run.fault is None else self._run.fault.text
        self._say(logging.INFO, "run ended", state=self._run.state.value, error=error)

    async def _advance(self) -> None:
        match self._run.state:
            case State.QUEUED:
                await self._wait("turn", anyio.sleep_forever)
            case State.STUCK:
                self._say(logging.ERROR, "run is stuck", reason=self._run.note, fault=self._run.fault)
                await self._wait("operator", anyio.sleep_forever)
            case State.DELAYED:
                if await self._awake():
                    self._run = await self._engine.recorder.due(self._run)
            case State.UNDOING:
                if await self._awake():
                    await self._undo()
            case _:
                if await self._awake():
                    await self._attempt()

    # Waiting.

    async def _unless_poked(self, call: Callable[[], Awaitable[T]], deadline: float) -> T | None:
        """What `call` returns; None when it was cut short by a poke or the deadline (in the event loop's time)."""
        if self._poked:
            return None
        with CancelScope(deadline=deadline) as scope:
            self._scope = scope
            try:
                return await call()
            finally:
                self._scope = None
        return None

    async def _wait(self, what: str, call: Callable[[], Awaitable[T]]) -> T | None:
        """As `_unless_poked`, until the run's deadline; past that the run is told to stop."""
        self.waiting_for = what
        done = await self._unless_poked(call, self._deadline())
        self.waiting_for = ""
        if done is None and not self._poked:
            await self._expire()
        return done

    async def _awake(self) -> bool:
        """Wait until the run's `wake_at`; false when interrupted. No wait is longer than it was to be when it was
        decided, whatever was done to the wall clock since."""
        wake_at, wait_s, clock = self._run.wake_at, self._run.wait_s, self._engine.clock
        if wake_at is None or wake_at <= clock.now():
            return True
        left_s = min(wake_at - clock.now(), inf if wait_s is None else wait_s)

        async def sleep() -> bool:
            await clock.sleep(left_s)
            return True

        return await self._wait("time", sleep) is not None

    def _deadline(self) -> float:
        """When the run must be over, in the event loop's time. Nothing hurries an undo or an operator."""
        at = self._run.deadline_at
        if at is None or self._run.state in (State.UNDOING, State.STUCK):
            return inf
        return anyio.current_time() + max(0.0, at - self._engine.clock.now())

    async def _expire(self) -> None:
        fault = fault_of(DeadlineExceeded(f"{self._run.flow} did not finish in time; it was at {self._run.step}"))
        self._run = await self._engine.recorder.post(self._run, StopAsked(Ending.FAILED, fault))

    # Steps.

    def _step(self) -> Step:
        step = self._engine.flows[self._run.flow].find(self._run.step)
        assert step is not None, "a run whose step is gone is stuck"
        return step

    async def _attempt(self) -> None:
        step = self._step()
        if step.queue is None:
            await self._perform(step)
            return
        turns, key = self._engine.queues[step.queue], whose()
        if await self._wait(f"queue {step.queue}", partial(_take, turns, key)):
            try:
                await self._perform(step)
            finally:
                turns.give_back(key)

    async def _perform(self, step: Step) -> None:
        name, started_at = f"{self._run.flow}.{step.name}", self._engine.clock.now()
        limit, deadline = anyio.current_time() + step.timeout_s, self._deadline()
        reach(f"{name}.before")
        enter(name)
        found = await self._unless_poked(partial(self._call, step), min(limit, deadline))
        reach(f"{name}.after")
        if found is not None:
            await self._record(found, started_at, step)
        elif self._poked:
            return  # the step is called again, unless the run was stopped
        elif deadline <= limit:
            await self._expire()
        else:
            await self._record(transition.of_error(_overtime(step), self._jitter()), started_at, step)

    async def _undo(self) -> None:
        step, started_at = self._step(), self._engine.clock.now()
        name = f"{self._run.flow}.{step.name}"
        reach(f"{name}.undo")
        enter(f"{name}.undo")
        found = await self._unless_poked(partial(self._call, step), anyio.current_time() + step.timeout_s)
        reach(f"{name}.undone")
        if found is not None or not self._poked:
            await self._record(found or transition.of_undo(_overtime(step), self._jitter()), started_at, step)

    async def _call(self, step: Step) -> Verdict:
        undoing = self._run.state is State.UNDOING
        try:
            if not undoing:
                return transition.of_outcome(await step.do(self._context(step)), self._jitter())
            assert step.undo is not None, "only a step with an undo is undone"
            await step.undo(self._context(step))
            return transition.of_undo(None, self._jitter())
        except Exception as error:  # noqa: BLE001 - a step may raise anything
            found = (transition.of_undo if undoing else transition.of_error)(error, self._jitter())
            if found.fault is not None and not found.fault.kind:  # in the family, the text is enough
                self._say(logging.WARNING, "step raised", raised=error)
            return found

    def _context(self, step: Step) -> Context[D]:
        run, engine = self._run, self._engine
        input = msgspec.msgpack.decode(run.input, type=engine.flows[run.flow].input)
        return Context(run, step, input, self._results, engine.deps, engine.clock, self._child)

    async def _record(self, found: Verdict, started_at: float, step: Step) -> None:
        self._run, record = await self._engine.recorder.attempt(self._run, found, started_at, step.durable)
        self._note(record)
        level = logging.DEBUG if record.fault is None else logging.WARNING
        error = None if record.fault is None else record.fault.text
        self._say(
            level, "step recorded", step=record.step, attempt=record.attempt, outcome=record.outcome.value, error=error
        )

    def _note(self, record: StepRecord) -> None:
        if record.outcome is StepStatus.DONE and record.result is not None:
            self._results[record.step] = record.result
        elif record.outcome is StepStatus.UNDONE:
            self._results.pop(record.step, None)

    async def _child(self, slot: str, flow: str, resource: Resource, input: msgspec.Struct) -> Any:
        engine, parent_id = self._engine, self._run.id
        child_id = await engine.store.write(
            lambda tx: engine.ledger.adopt(tx, parent_id, slot, flow, resource, input), Durability.DURABLE
        )
        inside("child_accepted")
        self.waiting_for = f"run {child_id}"
        try:
            child = await engine.settled(child_id)
            while child.handed_to is not None:
                child = await engine.settled(child.handed_to)
        finally:
            self.waiting_for = ""
        if child.state is not State.DONE:
            raise error_of(child.fault or fault_of(f"{flow} was {child.state.value}"))
        return None if child.result is None else msgspec.msgpack.decode(child.result)

    def _jitter(self) -> float:
        return self._engine.clock.random()

    def _say(self, level: int, phrase: str, *, raised: Exception | None = None, **fields: object) -> None:
        self._engine.log.say(self._run, level, phrase, raised, **fields)


async def _take(turns: Turns, key: str) -> bool:
    await turns.take(key)
    return True


def _overtime(step: Step) -> TimeoutError:
    return TimeoutError(f"took longer than {step.timeout_s:g} s")
