"""Watches every instance and acts on its end: the exit is recorded, and by the restart policy the machine is started
again, destroyed or put to rest. At boot it takes up every machine that was running and finds the exits it missed.

It decides nothing about a machine that a flow is ending on purpose; see `exits`.
"""

from contextlib import suppress

import anyio
from anyio.abc import TaskGroup, TaskStatus

from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.ids import InstanceId, MachineId
from hawker.log import bind
from hawker.record.machine import MACHINES, MachineRecord
from hawker.store.contract import Store
from hawker.worker.changes import Changes
from hawker.worker.exit_handling import ExitHandler
from hawker.worker.restored import InstanceAdoption

_log = bind("hawker.supervisor")
_AGAIN_S = 1.0
_MISSED_S = 10.0


class Supervisor:
    """One watching task per running instance."""

    def __init__(
        self, store: Store, clock: Clock, changes: Changes, exits: ExitHandler, adoption: InstanceAdoption
    ) -> None:
        self._store = store
        self._clock = clock
        self._exits = exits
        self._adoption = adoption
        self._watched: dict[MachineId, InstanceId] = {}
        self._changed: dict[MachineId, None] = {}  # in order, so that a run can be repeated
        self._wake = anyio.Event()
        changes.listen(self._note)

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled. Started once the exits that nobody saw are recorded and what runs is being watched."""
        await self._adoption.take_up_restored()
        await self._record_missed()
        async with anyio.create_task_group() as tasks:
            for _, record in list(self._store.scan(MACHINES)):
                self._watch_if_running(tasks, record)
            task_status.started()
            while True:
                await self._wake.wait()
                self._wake = anyio.Event()
                changed, self._changed = self._changed, {}
                for machine_id in changed:
                    if (found := self._store.get(MACHINES, machine_id)) is not None:
                        self._watch_if_running(tasks, found)

    async def _record_missed(self) -> None:
        """So that nobody is told that a machine runs which ended before the daemon came back."""
        with anyio.move_on_after(_MISSED_S):
            async with anyio.create_task_group() as tasks:
                for _, record in list(self._store.scan(MACHINES)):
                    if record.running is not None and record.running.exit is None:
                        tasks.start_soon(self._record_if_ended, record.id, record.running.instance_id)

    async def _record_if_ended(self, machine_id: MachineId, instance_id: InstanceId) -> None:
        """A host that cannot be asked now is asked again by the watch."""
        with suppress(HawkerError, OSError):
            if await self._exits.is_over(machine_id, instance_id):
                await self._saw_end(machine_id, instance_id)

    def _note(self, machine_id: MachineId) -> None:
        self._changed[machine_id] = None
        self._wake.set()

    def _watch_if_running(self, tasks: TaskGroup, record: MachineRecord) -> None:
        running = record.running
        if running is None or running.exit is not None or self._watched.get(record.id) == running.instance_id:
            return
        self._watched[record.id] = running.instance_id
        tasks.start_soon(self._watch, record.id, running.instance_id, name=f"watch {record.id}")

    async def _watch(self, machine_id: MachineId, instance_id: InstanceId) -> None:
        try:
            while not await self._saw_end(machine_id, instance_id):
                await self._clock.sleep(_AGAIN_S)
        finally:
            if self._watched.get(machine_id) == instance_id:
                del self._watched[machine_id]

    async def _saw_end(self, machine_id: MachineId, instance_id: InstanceId) -> bool:
        """False when host or store could not be asked just now; a watch never ends before its instance."""
        try:
            await self._exits.settle(machine_id, instance_id)
        except (HawkerError, OSError) as error:
            _log.error("cannot watch", extra={"machine": machine_id, "error": str(error)})
            return False
        return True
