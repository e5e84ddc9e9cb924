"""Machines with a `schedule`: each is started once in every hour, day, week or month, counted from its creation.

When a machine is due follows from its record, so nothing is stored and nothing is lost: a moment that passed while no
daemon was there is made up for once; one that passed while the machine ran is passed over.
"""

from math import inf

import anyio
from anyio.abc import TaskStatus

from hawker.clock import Clock
from hawker.config.schedule import moment_after
from hawker.containment import contained
from hawker.errors import HawkerError
from hawker.ids import MachineId
from hawker.log import bind
from hawker.machine import OFF
from hawker.record.machine import MACHINES, MachineRecord, MachineTarget
from hawker.store.contract import Store
from hawker.value_object import ValueObject
from hawker.worker.changes import Changes
from hawker.worker.operations import Operations

RETRY_S = 60.0  # after a start that was refused: the host is full, say, or someone holds the machine's lease
LONGEST_WAIT_S = 60.0  # so that a wall clock that was set is noticed

_log = bind("hawker.calendar")


def due_at(record: MachineRecord) -> float | None:
    """The moment in Unix seconds at which the machine is to be started next; None when it runs, or has no schedule."""
    schedule = record.config.schedule
    if schedule is None or record.state not in OFF:
        return None
    return moment_after(record.created_at, schedule, _last_at_work(record))


def _last_at_work(record: MachineRecord) -> float:
    """When it last ran, or failed to. A machine that never did counts from its creation."""
    running = record.running
    if running is None:
        return record.created_at
    ended_at = running.exit.exited_at if running.exit is not None else record.updated_at
    return max(record.created_at, running.started_at or 0.0, ended_at)


class _Entry(ValueObject, frozen=True):
    """A moment, and when it is tried once it has come."""

    due_at: float
    try_at: float


class Calendar:
    """Follows the table of machines and starts those that are due."""

    def __init__(self, store: Store, clock: Clock, operations: Operations, changes: Changes) -> None:
        self._store = store
        self._clock = clock
        self._operations = operations
        self._entries: dict[MachineId, _Entry] = {}
        self._noted: dict[MachineId, None] = {}
        self._wake = anyio.Event()
        changes.listen(self._note)

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        for _, record in list(self._store.scan(MACHINES)):
            self._follow(record.id, record)
        task_status.started()
        while True:
            with anyio.move_on_after(self._wait_s()):
                await self._wake.wait()
            self._wake = anyio.Event()
            noted, self._noted = self._noted, {}
            for machine_id in noted:
                self._follow(machine_id, self._store.get(MACHINES, machine_id))
            await self._start_due()

    def _note(self, machine_id: MachineId) -> None:
        self._noted[machine_id] = None
        self._wake.set()

    def _follow(self, machine_id: MachineId, record: MachineRecord | None) -> None:
        at = None if record is None else due_at(record)
        if at is None:
            self._entries.pop(machine_id, None)
        elif machine_id not in self._entries or self._entries[machine_id].due_at != at:
            self._entries[machine_id] = _Entry(at, at)

    def _wait_s(self) -> float:
        first = min((entry.try_at for entry in self._entries.values()), default=inf)
        if first == inf:
            return inf
        return min(LONGEST_WAIT_S, max(0.0, first - self._clock.now()))

    async def _start_due(self) -> None:
        now = self._clock.now()
        for machine_id, entry in list(self._entries.items()):
            if entry.try_at <= now:
                self._entries[machine_id] = _Entry(entry.due_at, now + RETRY_S)
                with contained("a scheduled machine is started", machine=machine_id):
                    await self._start(machine_id)

    async def _start(self, machine_id: MachineId) -> None:
        record = self._store.get(MACHINES, machine_id)
        if record is None:
            return
        try:
            await self._operations.start(MachineTarget(record.app, machine_id, None))
        except HawkerError as error:
            fields = {"machine": machine_id, "schedule": record.config.schedule, "error": str(error)}
            _log.warning("a scheduled machine could not be started", extra=fields)
