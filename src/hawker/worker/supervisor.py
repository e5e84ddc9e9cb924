"""Watches every instance and acts on its end: the exit is looked up on the host, recorded once, and by the restart
policy the machine is started again, destroyed or put to rest. At boot it takes up every machine that was running and
finds the exits it missed. The reconciler comes here when nobody saw an end.

It decides nothing about a machine that a flow is ending on purpose; see `exits`.
"""

from contextlib import suppress
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus

from hawker.clock import Clock
from hawker.containment import UNFORESEEN_AGAIN_S, contained
from hawker.errors import HawkerError, NotFound
from hawker.failpoint import reach
from hawker.fsm.contract import Resource
from hawker.fsm.runner import Runner
from hawker.ids import InstanceId, MachineId, new_ulid
from hawker.log import bind
from hawker.record.machine import MACHINES, MachineRecord, machine_resource
from hawker.runtime.driver import ALIVE, Driver, Exit, Phase
from hawker.store.contract import Store, Tx
from hawker.worker.changes import Changes
from hawker.worker.exits import Followup, record_exit
from hawker.worker.lifecycle.destroy import DESTROY
from hawker.worker.lifecycle.start import START, Launch
from hawker.worker.lifecycle.stop import REST, Halt, Rest
from hawker.worker.restored import InstanceAdoption
from hawker.worker.table import MachineTable

_endings_log = bind("hawker.endings")
_LOST = "the instance was lost, as after a reboot of the host"


class ExitHandler:
    """Remembers nothing; whoever comes second finds the exit recorded and changes nothing."""

    def __init__(self, store: Store, table: MachineTable, driver: Driver, clock: Clock, runner: Runner[Any]) -> None:
        self._store = store
        self._table = table
        self._driver = driver
        self._clock = clock
        self._runner = runner

    async def settle(self, machine_id: MachineId, instance_id: InstanceId) -> None:
        """Wait for the instance's end, at once when it is over, then record it and do what follows."""
        exit = await self._end_of(machine_id, instance_id)
        reach("instance.exit.before")
        await self._store.write(lambda tx: self._exited(tx, machine_id, instance_id, exit))
        reach("instance.exit.after")

    async def is_over(self, machine_id: MachineId, instance_id: InstanceId) -> bool:
        """Whether the host has no running instance of that name."""
        seen = await self._driver.recover(machine_id)
        return seen.phase not in ALIVE or seen.instance_id != instance_id

    async def _end_of(self, machine_id: MachineId, instance_id: InstanceId) -> Exit:
        seen = await self._driver.recover(machine_id)
        if seen.phase in ALIVE | {Phase.EXITED} and seen.instance_id == instance_id:
            try:
                return await self._driver.wait(machine_id)
            except NotFound:
                _endings_log.info("instance gone", extra={"machine": machine_id, "instance": instance_id})
        return Exit(exit_code=137, signal=9, exited_at=self._clock.now(), reason=_LOST)

    def _exited(self, tx: Tx, machine_id: MachineId, instance_id: InstanceId, exit: Exit) -> None:
        record = tx.get(MACHINES, machine_id)
        followup = record and record_exit(tx, self._table, record, instance_id, exit)
        if followup:
            self._follow(tx, followup, machine_resource(machine_id))
            tx.on_commit(lambda: _endings_log.info("exit seen", extra={"machine": machine_id, "code": exit.exit_code}))

    def _follow(self, tx: Tx, followup: Followup, resource: Resource) -> None:
        clock = self._clock
        if followup.restart_after_s is not None:
            delay_s = followup.restart_after_s * (0.75 + clock.random() / 2)
            again = Launch(instance_id=InstanceId(new_ulid(clock)))
            self._table.change(tx, followup.record, awaited=again.instance_id)
            self._runner.accept(tx, START, resource, again, delay_s=delay_s)
        elif followup.destroy:
            self._runner.accept(tx, DESTROY, resource, Halt(signal="SIGKILL", timeout_s=0))
        elif followup.rest:
            self._runner.accept(tx, REST, resource, Rest())


_log = bind("hawker.supervisor")
_AGAIN_S = 1.0
_MISSED_S = 10.0


class Supervisor:
    """The tasks that watch running instances, one for each."""

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
        with contained("a missed end is recorded", machine=machine_id), suppress(HawkerError, OSError):
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
            while (again_s := await self._saw_end(machine_id, instance_id)) > 0:
                await self._clock.sleep(again_s)
        finally:
            if self._watched.get(machine_id) == instance_id:
                del self._watched[machine_id]

    async def _saw_end(self, machine_id: MachineId, instance_id: InstanceId) -> float:
        """0 once the end is recorded, else the seconds until the next try: host or store could not be asked just now. A
        watch never ends before its instance."""
        with contained("an instance is watched", machine=machine_id):
            try:
                await self._exits.settle(machine_id, instance_id)
            except (HawkerError, OSError) as error:
                _log.error("cannot watch", extra={"machine": machine_id, "error": str(error)})
                return _AGAIN_S
            return 0.0
        return UNFORESEEN_AGAIN_S
