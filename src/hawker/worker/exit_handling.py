"""From an instance that has ended to what is next: its end is looked up on the host, recorded once, and followed up.

The supervisor comes here when it sees an end, the reconciler when nobody saw it.
"""

from typing import Any

from hawker.clock import Clock
from hawker.errors import NotFound
from hawker.failpoint import reach
from hawker.fsm.contract import Resource
from hawker.fsm.runner import Runner
from hawker.ids import InstanceId, MachineId, new_ulid
from hawker.log import bind
from hawker.record.machine import MACHINES, machine_resource
from hawker.runtime.driver import ALIVE, Driver, Exit, Phase
from hawker.store.contract import Store, Tx
from hawker.worker.exits import Followup, record_exit
from hawker.worker.lifecycle.destroy import DESTROY
from hawker.worker.lifecycle.start import START, Launch
from hawker.worker.lifecycle.stop import REST, Halt, Rest
from hawker.worker.table import MachineTable

_log = bind("hawker.endings")
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
                _log.info("instance gone", extra={"machine": machine_id, "instance": instance_id})
        return Exit(exit_code=137, signal=9, exited_at=self._clock.now(), reason=_LOST)

    def _exited(self, tx: Tx, machine_id: MachineId, instance_id: InstanceId, exit: Exit) -> None:
        record = tx.get(MACHINES, machine_id)
        followup = record and record_exit(tx, self._table, record, instance_id, exit)
        if followup:
            self._follow(tx, followup, machine_resource(machine_id))
            tx.on_commit(lambda: _log.info("exit seen", extra={"machine": machine_id, "code": exit.exit_code}))

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
