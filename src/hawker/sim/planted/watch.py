"""Supervisors that see too little or too much."""

import msgspec

from hawker.ids import InstanceId, MachineId
from hawker.record.machine import MACHINES
from hawker.runtime.driver import Exit
from hawker.store.contract import Tx
from hawker.worker.exit_handling import ExitHandler
from hawker.worker.supervisor import Supervisor


class WatchesOnlyItsOwn(Supervisor):
    """Watches what is started in its time, not what an earlier daemon started."""

    async def _record_missed(self) -> None:
        for _, record in self._store.scan(MACHINES):
            if record.running is not None:
                self._watched[record.id] = record.running.instance_id


class RecordsTwice(ExitHandler):
    """Does not ask whether a flow has recorded the exit already."""

    def _exited(self, tx: Tx, machine_id: MachineId, instance_id: InstanceId, exit: Exit) -> None:
        record = tx.get(MACHINES, machine_id)
        if record is not None and record.running is not None and record.running.instance_id == instance_id:
            running = msgspec.structs.replace(record.running, exit=None)
            tx.put(MACHINES, machine_id, msgspec.structs.replace(record, running=running))
        super()._exited(tx, machine_id, instance_id, exit)
