"""What a drive writes: attempts and events, each in one transaction, for as long as it takes.

Invariant: what has happened is recorded before the run goes on. A full disk makes a run wait, never fail. A `commit`
that raises fails the attempt; an `on_end` that raises parks the run, with nothing undone.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.fsm import verdict
from hawker.fsm.contract import Backoff
from hawker.fsm.fault import fault_of
from hawker.fsm.ledger import CommitFailed, EndFailed, Ledger
from hawker.fsm.log import RunLog
from hawker.fsm.run import Run, State, StepRecord, StepStatus
from hawker.fsm.transition import Event, Parked
from hawker.fsm.verdict import Verdict
from hawker.store.contract import Durability, Store, Tx

T = TypeVar("T")

STORE_BACKOFF: Final = Backoff(first_s=0.05, cap_s=5.0)  # its `attempts` do not count here


class Recorder:
    def __init__(self, store: Store, ledger: Ledger, clock: Clock, log: RunLog) -> None:
        self._store = store
        self._ledger = ledger
        self._clock = clock
        self._log = log

    async def attempt(self, run: Run, found: Verdict, started_at: float, durable: bool) -> tuple[Run, StepRecord]:
        """The run after an attempt, and the attempt's line of history. Durable as well: what did not succeed, since
        once an undo has begun, the step must not get another chance; and a hand-off, since it accepts a run."""
        durable = durable or found.outcome in (StepStatus.RETRY, StepStatus.FAILED, StepStatus.HANDED_OFF)
        durability = Durability.DURABLE if durable else Durability.ORDERED
        try:
            return await self._attempt(run, found, started_at, durability)
        except CommitFailed as failure:
            error = failure.__cause__ or failure
            self._log.say(run, logging.WARNING, "commit raised", error)
            undoing, jitter = run.state is State.UNDOING, self._clock.random()
            instead = verdict.of_undo(error, jitter) if undoing else verdict.of_error(error, jitter)
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
