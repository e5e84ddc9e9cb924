"""The flow engine as the worker uses it: accept runs, serve them, wait for them, look at them, stop them.

The thin shell: what a run does next is decided in `transition`, written by `ledger`, performed by `drive`.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup, TaskStatus

from hawker.clock import Clock
from hawker.errors import DeadlineExceeded, NotFound, Unavailable, WrongState
from hawker.fair.turns import NODE, Share, Turns
from hawker.fsm import journal
from hawker.fsm.contract import Ending, Flow, I, Resource, WhenBusy
from hawker.fsm.drive import STORE_BACKOFF, Drive, Engine, Recorder
from hawker.fsm.ledger import EndFailed, Ledger
from hawker.fsm.observer import Observer, RunLog, Silent
from hawker.fsm.run import ENDED, Run, State, fault_of
from hawker.fsm.transition import StopAsked
from hawker.fsm.view import QueueView, RunView, StepView, queue_view_of, shown_state, step_view_of, view_of
from hawker.ids import RunId
from hawker.store.contract import Durability, Store, Tx

D = TypeVar("D")

KEEP_RUNS = 50  # per resource, the newest; older ended ones are dropped with their history
PRUNE_BATCH = 200
MOST_QUEUED = 100_000  # runs of one key: each was accepted before
_LATE_S = 0.1  # a late record waits no longer than this


class _Waiter:
    """Those who wait for one run's end; `run` is how it ended."""

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.run: Run | None = None


class Runner(Generic[D]):
    """Runs `flows` on what is in `store`. `queues` gives each named queue its concurrency limit, or its share;
    `owner_of` says in whose share the work of a run counts, which nobody's is unless told. `epoch` names how
    long what steps make can last: the kernel's boot id, say. A run that is resumed in another epoch goes through its
    steps again from the first."""

    def __init__(
        self,
        store: Store,
        flows: Sequence[Flow[Any]],
        deps: D,
        clock: Clock,
        *,
        queues: Mapping[str, int | Share] | None = None,
        owner_of: Callable[[Run], str] = lambda run: NODE,
        epoch: str = "",
        keep_runs: int = KEEP_RUNS,
        log: logging.Logger | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._drives: dict[RunId, Drive[D]] = {}
        self._waiters: dict[RunId, _Waiter] = {}
        self._group: TaskGroup | None = None
        self._observer = observer or Silent()
        self._queues = {name: Turns(_share_of(name, limit)) for name, limit in (queues or {}).items()}
        named = _by_name(flows, queues or {})
        self.flows = tuple(sorted(named))
        """The names of all."""
        last = journal.newest_id(store)
        self._ledger = Ledger(named, deps, clock, keep_runs, epoch, self._begin, self._finish, last, self._observer)
        self._log = log or logging.getLogger("hawker.fsm")
        run_log = RunLog(self._log)
        recorder = Recorder(store, self._ledger, clock, run_log)
        self._engine = Engine(
            store, self._ledger, recorder, named, deps, clock, self._queues, self._settled, run_log, owner_of
        )

    def accept(
        self,
        tx: Tx,
        flow: Flow[I] | str,
        resource: Resource,
        input: I,
        *,
        when_busy: WhenBusy = WhenBusy.QUEUE,
        delay_s: float = 0,
        deadline_s: float | None = None,
        parent: RunId | None = None,
    ) -> RunId:
        """Begin a run inside the caller's transaction; its work starts once that is committed. Raises `Conflict` when
        the resource is busy and `when_busy` is REFUSE, or too many runs wait for it."""
        name = flow if isinstance(flow, str) else flow.name
        return self._ledger.accept(tx, name, resource, input, when_busy, delay_s, deadline_s, parent)

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Resume everything, then work until cancelled. What is under way then is taken up again by the next boot."""
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                for run in await self._resumed():
                    self._observer.resumed(run)
                    self._begin(run)
                task_status.started()
                await self._record_late()
            finally:
                self._group = None
                self._drives.clear()

    async def _resumed(self) -> list[Run]:
        """Every unended run. A store that cannot be written, as on a full disk, makes it wait and not fail."""
        tries = 0
        while True:
            try:
                return await self._store.write(self._ledger.resume, Durability.ORDERED)
            except Unavailable as error:
                tries += 1
                self._log.error("runs cannot be resumed yet", extra={"reason": str(error)})
            await self._clock.sleep(STORE_BACKOFF.wait_s(tries, self._clock.random()))

    async def _record_late(self) -> None:
        """Write what steps left to be recorded, where no other record of their runs takes it along: a run that is shown
        is at the step at which it is."""
        while True:
            await self._ledger.late.wait()
            await self._clock.sleep(_LATE_S)
            try:
                await self._store.write(self._ledger.record_late, Durability.ORDERED)
            except Unavailable as error:
                self._log.error("steps cannot be recorded yet", extra={"reason": str(error)})

    async def leave(self) -> None:
        """Leaves the runs in good order. To be called before `serve` is cancelled on purpose: a run that daemon after
        daemon ends at is stuck at last, and an orderly end does not count. Raises `Unavailable`."""
        await self._store.write(self._ledger.leave, Durability.ORDERED)

    async def wait(self, run_id: RunId, timeout_s: float) -> RunView:
        """The run once it has ended. Raises `NotFound`, and `DeadlineExceeded` when it goes on for longer."""
        with anyio.move_on_after(timeout_s):
            return view_of(await self._settled(run_id))
        raise DeadlineExceeded(f"run {run_id} did not end within {timeout_s:g} s")

    async def cancel(self, run_id: RunId, reason: str) -> None:
        """Stop the run where it is and undo it. Durable when it returns; `wait` for the end. A run that already undoes,
        is stuck undoing or has ended stays so. Raises `NotFound`."""
        fault = fault_of(WrongState(f"cancelled: {reason}"))
        await self._stop(run_id, StopAsked(Ending.CANCELLED, fault))

    async def abort(self, run_id: RunId) -> None:
        """An operator's stop: undo and end as failed. When it is the undo that is stuck, give that one undo up. Raises
        `NotFound`, and `WrongState` when the run has ended."""
        run = journal.find(self._store, run_id)
        if run is not None and run.state in ENDED:
            raise WrongState(f"run {run_id} has ended: {run.state.value}")
        fault = fault_of(WrongState("aborted by an operator"))
        await self._stop(run_id, StopAsked(Ending.FAILED, fault, force=True))

    async def retry(self, run_id: RunId) -> None:
        """An operator's retry: of the current step where a run is stuck or waits, from the first one when it has
        failed. Raises `NotFound`, and `WrongState` when there is nothing to retry."""
        await self._store.write(lambda tx: self._ledger.retry(tx, run_id))

    def get(self, run_id: RunId) -> RunView | None:
        run = journal.find(self._store, run_id)
        return None if run is None else self._view(run)

    def active(self, resource: Resource) -> RunView | None:
        run = journal.active(self._store, resource)
        return None if run is None else self._view(run)

    def history(self, run_id: RunId) -> list[StepView]:
        """Every attempt of every step, oldest first."""
        return [step_view_of(record) for record in journal.history(self._store, run_id)]

    def list(
        self,
        *,
        resource: Resource | None = None,
        flow: str | None = None,
        active: bool | None = None,
        limit: int = 100,
    ) -> list[RunView]:
        """The newest first. `active` keeps the unended ones, or the ended ones."""
        with self._store.snapshot() as reader:
            runs = (run for run in journal.newest(reader, resource, opened=active) if flow in (None, run.flow))
            return [self._view(run) for run in islice(runs, limit)]

    def open_states(self) -> Counter[State]:
        """The number of runs in each state that have not ended."""
        return Counter(shown_state(run.state, self._waiting_for(run.id)) for run in journal.open_states(self._store))

    def queues(self) -> Sequence[QueueView]:
        return [queue_view_of(name, turns) for name, turns in self._queues.items()]

    def forget(self, tx: Tx, resource: Resource) -> None:
        """Drop the ended runs of a resource and their history."""
        journal.trim(tx, resource, keep=0)

    async def prune(self, kind: str, older_than_s: float) -> int:
        """Drop the runs on resources of a kind that ended longer ago than this; returns how many. For resources that
        come and go without anyone to forget them: each would leave its last runs for ever."""
        moment, dropped = self._clock.now() - older_than_s, 0
        while old := journal.ended_before(self._store, kind, moment, PRUNE_BATCH):
            await self._store.write(partial(journal.drop_all, run_ids=old), Durability.ORDERED)
            dropped += len(old)
        return dropped

    async def _stop(self, run_id: RunId, event: StopAsked) -> None:
        try:
            await self._store.write(lambda tx: self._ledger.post(tx, run_id, event))
        except EndFailed as failure:
            raise Unavailable(f"run {run_id} cannot be ended: {failure.__cause__}") from failure

    async def _settled(self, run_id: RunId) -> Run:
        run = journal.find(self._store, run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id}")
        if run.state in ENDED:
            return run
        waiter = self._waiters.setdefault(run_id, _Waiter())
        await waiter.event.wait()
        assert waiter.run is not None
        return waiter.run

    def _begin(self, run: Run) -> None:
        """There is work on this run. Before `serve` nothing happens: it will find the run itself."""
        if run.id in self._drives:
            self._drives[run.id].poke()
        elif self._group is not None:
            drive = self._drives[run.id] = Drive(self._engine, run)
            self._group.start_soon(drive.run)

    def _finish(self, run: Run) -> None:
        self._observer.ended(run)
        drive = self._drives.pop(run.id, None)
        if drive is not None:
            drive.poke()
        waiter = self._waiters.pop(run.id, None)
        if waiter is not None:
            waiter.run = run
            waiter.event.set()

    def _view(self, run: Run) -> RunView:
        return view_of(run, self._waiting_for(run.id))

    def _waiting_for(self, run_id: RunId) -> str:
        drive = self._drives.get(run_id)
        return "" if drive is None else drive.waiting_for


def _share_of(name: str, limit: int | Share) -> Share:
    """A bare limit is for all together."""
    if isinstance(limit, Share):
        return limit
    return Share(name=name, total=limit, each=limit, waiting=MOST_QUEUED, key="owner", over="the run waits")


def _by_name(flows: Sequence[Flow[Any]], queues: Mapping[str, int | Share]) -> dict[str, Flow[Any]]:
    named = {flow.name: flow for flow in flows}
    if len(named) < len(flows):
        raise ValueError("two flows have the same name")
    missing = {step.queue for flow in flows for step in flow.steps if step.queue} - set(queues)
    if missing:
        raise ValueError(f"steps wait for queues that do not exist: {', '.join(sorted(missing))}")
    return named
