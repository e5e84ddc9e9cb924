"""Watches every instance and acts on its end: the exit is recorded, and by the restart policy the machine is started
again, destroyed or put to rest. At boot it takes up every machine that was running and finds the exits it missed.

It decides nothing about a machine that a flow is ending on purpose; see `exits`.
"""

from contextlib import suppress

import anyio
from anyio.abc import TaskGroup, TaskStatus

from hawker.errors import HawkerError, NotFound
from hawker.fsm.contract import Resource
from hawker.fsm.runner import Runner
from hawker.ids import InstanceId, MachineId, new_ulid
from hawker.log import bind
from hawker.runtime.driver import Exit, Phase
from hawker.store.contract import Tx
from hawker.worker.changes import Changes
from hawker.worker.exits import Followup, record_exit
from hawker.worker.lifecycle.deps import Deps, machine_resource
from hawker.worker.lifecycle.destroy import DESTROY
from hawker.worker.lifecycle.rest import REST, Rest
from hawker.worker.lifecycle.start import START, Launch
from hawker.worker.lifecycle.stop import Halt
from hawker.worker.records import MACHINES, MachineRecord

_log = bind("hawker.supervisor")
_AGAIN_S = 1.0
_MISSED_S = 10.0
_LOST = "the instance was lost, as after a reboot of the host"


class Supervisor:
    """One watching task per running instance."""

    def __init__(self, deps: Deps, runner: Runner[Deps], changes: Changes) -> None:
        self._deps = deps
        self._runner = runner
        self._watched: dict[MachineId, InstanceId] = {}
        self._changed: set[MachineId] = set()
        self._wake = anyio.Event()
        changes.listen(self._note)

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled. Started once the exits that nobody saw are recorded and what runs is being watched."""
        await self._record_missed()
        async with anyio.create_task_group() as tasks:
            for _, record in list(self._deps.store.scan(MACHINES)):
                self._watch_if_running(tasks, record)
            task_status.started()
            while True:
                await self._wake.wait()
                self._wake = anyio.Event()
                changed, self._changed = self._changed, set()
                for machine_id in changed:
                    if (found := self._deps.store.get(MACHINES, machine_id)) is not None:
                        self._watch_if_running(tasks, found)

    async def _record_missed(self) -> None:
        """So that nobody is told that a machine runs which ended before the daemon came back."""
        with anyio.move_on_after(_MISSED_S):
            async with anyio.create_task_group() as tasks:
                for _, record in list(self._deps.store.scan(MACHINES)):
                    if record.running is not None and record.running.exit is None:
                        tasks.start_soon(self._record_if_ended, record.id, record.running.instance_id)

    async def _record_if_ended(self, machine_id: MachineId, instance_id: InstanceId) -> None:
        """A host that cannot be asked now is asked again by the watch."""
        with suppress(HawkerError, OSError):
            seen = await self._deps.driver.recover(machine_id)
            if seen.phase is not Phase.RUNNING or seen.instance_id != instance_id:
                await self._saw_end(machine_id, instance_id)

    def _note(self, machine_id: MachineId) -> None:
        self._changed.add(machine_id)
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
                await self._deps.clock.sleep(_AGAIN_S)
        finally:
            if self._watched.get(machine_id) == instance_id:
                del self._watched[machine_id]

    async def _saw_end(self, machine_id: MachineId, instance_id: InstanceId) -> bool:
        """False when host or store could not be asked just now; a watch never ends before its instance."""
        try:
            exit = await self._end_of(machine_id, instance_id)
            await self._deps.store.write(lambda tx: self._exited(tx, machine_id, instance_id, exit))
        except (HawkerError, OSError) as error:
            _log.error("cannot watch", extra={"machine": machine_id, "error": str(error)})
            return False
        return True

    async def _end_of(self, machine_id: MachineId, instance_id: InstanceId) -> Exit:
        seen = await self._deps.driver.recover(machine_id)
        if seen.phase in (Phase.RUNNING, Phase.EXITED) and seen.instance_id == instance_id:
            try:
                return await self._deps.driver.wait(machine_id)
            except NotFound:
                _log.info("instance gone", extra={"machine": machine_id, "instance": instance_id})
        return Exit(exit_code=137, signal=9, exited_at=self._deps.clock.now(), reason=_LOST)

    def _exited(self, tx: Tx, machine_id: MachineId, instance_id: InstanceId, exit: Exit) -> None:
        record = tx.get(MACHINES, machine_id)
        followup = record and record_exit(tx, self._deps.table, record, instance_id, exit)
        if followup:
            self._follow(tx, followup, machine_resource(machine_id))
            tx.on_commit(lambda: _log.info("exit seen", extra={"machine": machine_id, "code": exit.exit_code}))

    def _follow(self, tx: Tx, followup: Followup, resource: Resource) -> None:
        clock = self._deps.clock
        if followup.restart_after_s is not None:
            delay_s = followup.restart_after_s * (0.75 + clock.random() / 2)
            again = Launch(instance_id=InstanceId(new_ulid(clock)))
            self._deps.table.change(tx, followup.record, awaited=again.instance_id)
            self._runner.accept(tx, START, resource, again, delay_s=delay_s)
        elif followup.destroy:
            self._runner.accept(tx, DESTROY, resource, Halt(signal="SIGKILL", timeout_s=0))
        elif followup.rest:
            self._runner.accept(tx, REST, resource, Rest())
