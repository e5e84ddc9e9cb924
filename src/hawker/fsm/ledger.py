"""Every change to a run, each to be called inside a store transaction: accept, step, end, hand off, stop, resume.

It joins the pure `transition` with the `journal`. Invariant: at most one run per resource is past QUEUED, and the
transaction that ends a run also begins the next in line. What has begun or ended is told once it is committed.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import anyio
import msgspec
from msgspec.structs import replace

from hawker.clock import Clock
from hawker.errors import Conflict, NotFound, WrongState
from hawker.fsm import journal
from hawker.fsm.contract import Commit, EndedRun, Ending, Flow, HandOff, Resource, WhenBusy
from hawker.fsm.observer import Observer
from hawker.fsm.run import ENDED, Run, State, StepRecord, fault_of, next_run_id
from hawker.fsm.transition import (
    Due,
    Event,
    HandedOff,
    RetryAsked,
    StopAsked,
    end_without_flow,
    fit,
    resumed,
    rewind,
    transition,
)
from hawker.ids import RunId
from hawker.store.contract import Reader, Tx
from hawker.value_object import ValueObject

R = TypeVar("R")


class CommitFailed(Exception):
    """A step's `commit` raised; the cause is what it raised. The transaction is rolled back."""


class EndFailed(Exception):
    """A flow's `on_end` raised; the cause is what it raised. The transaction is rolled back."""


class LateStep(ValueObject, frozen=True):
    """A step that has succeeded and is not recorded yet; `number` is its record's place in the run's history."""

    number: int
    event: Event
    record: StepRecord


class Ledger:
    """`on_begun` hears of each run that has work now, `on_ended` of each that has ended: in the loop's thread."""

    def __init__(
        self,
        flows: Mapping[str, Flow[Any]],
        deps: object,
        clock: Clock,
        keep: int,
        epoch: str,
        on_begun: Callable[[Run], None],
        on_ended: Callable[[Run], None],
        last: RunId,
        observer: Observer,
    ) -> None:
        self._flows = flows
        self._definitions = {name: flow.definition() for name, flow in flows.items()}
        self._deps = deps
        self._clock = clock
        self._keep = keep
        self._epoch = epoch
        self._on_begun = on_begun
        self._on_ended = on_ended
        self._observer = observer
        self._last = last  # only ever touched inside transactions, so by one thread at a time
        self._late: dict[RunId, tuple[LateStep, ...]] = {}  # changed in the loop's thread only
        self.late = anyio.Event()
        """Set once there are records to write late."""

    def accept(
        self,
        tx: Tx,
        flow: str,
        resource: Resource,
        input: msgspec.Struct,
        when_busy: WhenBusy,
        delay_s: float = 0,
        deadline_s: float | None = None,
        parent: RunId | None = None,
    ) -> RunId:
        busy = journal.active(tx, resource)
        if busy is not None and when_busy is WhenBusy.REFUSE:
            raise Conflict(f"{resource.kind} {resource.id} is busy: {busy.flow} is under way")
        if busy is not None and when_busy is WhenBusy.JOIN and busy.flow == flow:
            return busy.id
        run = self._new(flow, resource, input, deadline_s, parent)
        if delay_s > 0:
            run = replace(run, state=State.DELAYED, wake_at=run.accepted_at + delay_s, wait_s=delay_s)
        else:
            run = self._turn(run, first=journal.join_line(tx, run))
        journal.add(tx, run)
        tx.on_commit(partial(self._observer.accepted, run))
        tx.on_commit(partial(self._on_begun, run))
        return run.id

    def adopt(self, tx: Tx, parent_id: RunId, slot: str, flow: str, resource: Resource, input: msgspec.Struct) -> RunId:
        """Accept a child, or find the one that the parent already has in `slot`: one call of one attempt."""
        stored, parent = self._caught_up(tx, parent_id)
        if parent.state in ENDED:
            raise WrongState(f"run {parent_id} has ended")
        self._save(tx, stored, parent)
        known = parent.children.get(slot)
        if known is not None and journal.find(tx, known) is not None:
            return known
        self._forbid_cycle(tx, parent, resource)
        child_id = self.accept(tx, flow, resource, input, WhenBusy.JOIN, parent=parent_id)
        journal.save(tx, replace(parent, children={**parent.children, slot: child_id}))
        return child_id

    def step(self, tx: Tx, run_id: RunId, event: Event, record: StepRecord, commit: Commit | None) -> Run:
        """Writes one attempt's record, what the step commits, and what follows from it, together. Writes nothing of it
        for a run that was cancelled, and so ended, while its step came to its end."""
        stored, run = self._caught_up(tx, run_id)
        if run.state in ENDED:
            return run
        journal.record(tx, run, record)
        if commit is not None:
            _guarded(partial(commit, tx))
        tx.on_commit(partial(self._observer.attempted, run, record))
        return self._save(tx, stored, self._stepped(run, event))

    def may_be_late(self, run: Run) -> bool:
        """Whether another step follows. Never for a run that another daemon died at: what it records says that it gets
        on, and each daemon in a row may die a step later."""
        flow = self._flows.get(run.flow)
        return run.resumes == 0 and flow is not None and flow.following(run.step) is not None

    def step_late(self, run: Run, event: Event, record: StepRecord) -> Run:
        """The run after a step that succeeded and will be recorded with the next change of the run, or by
        `record_late`. In the loop's thread, outside of any transaction."""
        self._late[run.id] = (*self._late.get(run.id, ()), LateStep(run.records, event, record))
        self.late.set()
        return self._stepped(run, event)

    def record_late(self, tx: Tx) -> None:
        """Write what is not recorded yet, of all runs."""
        for run_id in tuple(self._late):
            if tx.get(journal.OPEN, run_id) is None:
                tx.on_commit(partial(self._keep_late, run_id, ()))
                continue
            stored, run = self._caught_up(tx, run_id)
            self._save(tx, stored, run)

    def find(self, reader: Reader, run_id: RunId) -> Run | None:
        """The run with its steps that are not recorded yet. In the loop's thread; those that it can no longer come to,
        because it was stopped before they had ended, are forgotten."""
        run = journal.find(reader, run_id)
        if run is None:
            return None
        late_steps = self._late_steps(run)
        for late in late_steps:
            run = self._stepped(run, late.event)
        if not late_steps:
            self._keep_late(run_id, ())
        return run

    def _caught_up(self, tx: Tx, run_id: RunId) -> tuple[Run, Run]:
        """The run as it is stored, and after its late steps, whose records are written; the caller saves the run."""
        stored = run = self._known(tx, run_id)
        for late in self._late_steps(stored):
            journal.record(tx, run, late.record)
            tx.on_commit(partial(self._observer.attempted, run, late.record))
            run = self._stepped(run, late.event)
        if run is not stored:
            tx.on_commit(partial(self._forget_late, run_id, run.records))
        return stored, run

    def _late_steps(self, stored: Run) -> tuple[LateStep, ...]:
        if stored.state is not State.RUNNING:
            return ()
        return tuple(late for late in self._late.get(stored.id, ()) if late.number >= stored.records)

    def _stepped(self, run: Run, event: Event) -> Run:
        return replace(self._after(run, event), records=run.records + 1, vain_resumes=0)

    def _forget_late(self, run_id: RunId, before: int) -> None:
        self._keep_late(run_id, tuple(late for late in self._late.get(run_id, ()) if late.number >= before))

    def _keep_late(self, run_id: RunId, left: tuple[LateStep, ...]) -> None:
        """In the loop's thread. Where nothing is left of any run, nobody is woken to write it."""
        if left:
            self._late[run_id] = left
        elif self._late.pop(run_id, None) is not None and not self._late:
            self.late = anyio.Event()

    def hand_off(self, tx: Tx, run_id: RunId, hand_off: HandOff, record: StepRecord) -> Run:
        """End the run as done and begin its successor in the same place of the line."""
        stored, run = self._caught_up(tx, run_id)
        if run.state in ENDED:
            return run
        journal.record(tx, run, record)
        if hand_off.commit is not None:
            _guarded(partial(hand_off.commit, tx))
        tx.on_commit(partial(self._observer.attempted, run, record))
        after = run
        if run.state is State.RUNNING:
            fresh = _guarded(lambda: self._new(hand_off.flow, run.resource, hand_off.input, None, run.parent))
            heir = self._turn(replace(fresh, handed_from=run.id), first=True)
            journal.take_over(tx, run, heir)
            journal.add(tx, heir)
            tx.on_commit(partial(self._observer.accepted, heir))
            tx.on_commit(partial(self._on_begun, heir))
            after = self._after(run, HandedOff(heir.id))
        return self._save(tx, stored, replace(after, records=run.records + 1))

    def due(self, tx: Tx, run_id: RunId) -> Run:
        """A delayed run joins its resource's line."""
        run = self._known(tx, run_id)
        if run.state is not State.DELAYED:
            return run
        try:
            first = journal.join_line(tx, run)
        except Conflict as error:
            return self._save(tx, run, self._after(run, StopAsked(Ending.FAILED, fault_of(error))))
        return self._save(tx, run, self._turn(run, first=first))

    def post(self, tx: Tx, run_id: RunId, event: Event) -> Run:
        """An event from outside the run's own steps. An ended run stays as it is."""
        if journal.find(tx, run_id) is None:
            raise NotFound(f"there is no run {run_id}")
        stored, run = self._caught_up(tx, run_id)
        after = self._save(tx, stored, self._after(run, event)) if run.state not in ENDED else run
        if after is not run and after.state not in ENDED:
            tx.on_commit(partial(self._on_begun, after))
        return after

    def retry(self, tx: Tx, run_id: RunId) -> None:
        """An operator's retry: go on where the run is stuck or waits; begin a failed one again."""
        run = journal.find(tx, run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id}")
        if run.flow not in self._flows:
            raise WrongState(f"run {run_id} cannot go on: its flow {run.flow} no longer exists")
        after = self._after(run, RetryAsked())
        if after is run:
            raise WrongState(f"run {run_id} is {run.state.value}: there is nothing to retry")
        if after.state is State.QUEUED:
            after = self._turn(after, first=journal.join_line(tx, after))
        after = self._fit(after)
        journal.reopen(tx, after)
        tx.on_commit(partial(self._on_begun, after))

    def resume(self, tx: Tx) -> list[Run]:
        """Resumes every unended run at boot, under today's flows."""
        runs = []
        for run in journal.open_runs(tx):
            after = run
            if run.state in (State.RUNNING, State.UNDOING):
                waits = journal.has_open_child(tx, run) or self._waits(run)
                after = resumed(self._fit(run), self._clock.now(), waits=waits)
                journal.save(tx, after)
            runs.append(after)
        return runs

    def _waits(self, run: Run) -> bool:
        """Whether the step at which it is waits for others."""
        flow = self._flows.get(run.flow)
        at = None if flow is None or run.state is not State.RUNNING else flow.find(run.step)
        return at is not None and at.waits

    def leave(self, tx: Tx) -> None:
        """This daemon ends because it was told to: that it took a run up is not held against the run, and no step of it
        is repeated."""
        self.record_late(tx)
        for run in journal.open_runs(tx):
            if run.vain_resumes > 0:
                journal.save(tx, replace(run, vain_resumes=run.vain_resumes - 1))

    def _new(
        self, flow: str, resource: Resource, input: msgspec.Struct, deadline_s: float | None, parent: RunId | None
    ) -> Run:
        found = self._flows[flow]
        assert isinstance(input, found.input), f"flow {flow} takes {found.input.__name__}, not {type(input).__name__}"
        self._last = next_run_id(self._clock, self._last)
        now = self._clock.now()
        limit_s = found.deadline_s if deadline_s is None else deadline_s
        return Run(
            id=self._last,
            flow=flow,
            definition=self._definitions[flow],
            resource=resource,
            input=msgspec.msgpack.encode(input),
            state=State.QUEUED,
            step=found.steps[0].name,
            accepted_at=now,
            deadline_at=None if limit_s is None else now + limit_s,
            parent=parent,
        )

    def _after(self, run: Run, event: Event) -> Run:
        flow = self._flows.get(run.flow)
        if flow is not None:
            return transition(run, flow, event, self._clock.now())
        if isinstance(event, StopAsked):
            return end_without_flow(run, event, self._clock.now())
        return run  # stuck, and a retry cannot help as long as the flow is gone

    def _turn(self, run: Run, *, first: bool) -> Run:
        """The run now that it is in line."""
        flow = self._flows.get(run.flow)
        if flow is None:
            return self._fit(run) if first else replace(run, state=State.QUEUED)
        after = replace(transition(run, flow, Due(first=first), self._clock.now()), epoch=self._epoch)
        return self._fit(after) if first else after

    def _fit(self, run: Run) -> Run:
        """The run under today's flow and in this epoch."""
        flow = self._flows.get(run.flow)
        if flow is None:
            return fit(run, None)
        fitting = run if run.definition == self._definitions[run.flow] else fit(run, flow)
        return rewind(fitting, flow, self._epoch)

    def _save(self, tx: Tx, before: Run, after: Run) -> Run:
        if after.state in ENDED:
            self._end(tx, after)
        elif after != before:
            journal.save(tx, after)
        return after

    def _end(self, tx: Tx, run: Run) -> None:
        journal.close(tx, run)
        heir = journal.leave_line(tx, run)
        if heir is not None and heir.state is State.QUEUED:
            begun = self._turn(heir, first=True)
            journal.save(tx, begun)
            tx.on_commit(partial(self._on_begun, begun))
        journal.trim(tx, run.resource, self._keep)
        flow = self._flows.get(run.flow)
        if flow is not None and flow.on_end is not None:
            on_end = flow.on_end
            _guarded(lambda: on_end(tx, _ended(run, flow, self._deps)), EndFailed)
        tx.on_commit(partial(self._on_ended, run))

    def _known(self, tx: Tx, run_id: RunId) -> Run:
        run = journal.find(tx, run_id)
        assert run is not None, f"a run is kept while its task is at it: {run_id}"
        return run

    def _forbid_cycle(self, tx: Tx, parent: Run, resource: Resource) -> None:
        """A child on a resource that an ancestor holds would wait for it forever."""
        ancestor: Run | None = parent
        while ancestor is not None:
            assert ancestor.resource != resource, f"run {ancestor.id} holds {resource.kind} {resource.id} itself"
            ancestor = None if ancestor.parent is None else journal.find(tx, ancestor.parent)


def _ended(run: Run, flow: Flow[Any], deps: object) -> EndedRun[Any]:
    assert run.ending is not None and run.ended_at is not None
    return EndedRun(
        run_id=run.id,
        resource=run.resource,
        input=msgspec.msgpack.decode(run.input, type=flow.input),
        ending=run.ending,
        error=None if run.fault is None else run.fault.text,
        now=run.ended_at,
        deps=deps,
    )


def _guarded(call: Callable[[], R], failure: type[Exception] = CommitFailed) -> R:
    try:
        return call()
    except Exception as error:  # a flow's own code may raise anything; the step runner judges it
        raise failure from error
