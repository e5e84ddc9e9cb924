"""The operations of a worker whose machines are never launched: each is over in the transaction that begins it.

Admission, the records, their indexes and their histories are the worker's own. There are no flows and no host.
"""

from typing import TypeVar

import msgspec

from hawker.fsm.contract import Flow
from hawker.ids import MachineId
from hawker.machine import State
from hawker.record.machine import MACHINES, MachineRecord
from hawker.store.contract import Tx
from hawker.worker.capacity import at_rest
from hawker.worker.lifecycle.create import CREATE
from hawker.worker.lifecycle.destroy import DESTROY
from hawker.worker.lifecycle.start import START, Launch
from hawker.worker.lifecycle.stop import STOP
from hawker.worker.operations import Operations
from hawker.worker.table import Happened

Given = TypeVar("Given", bound=msgspec.Struct)


class Swift(Operations):
    """Creates, starts, stops and destroys; other operations are not played."""

    def _accept(self, tx: Tx, flow: Flow[Given], machine_id: MachineId, input: Given) -> None:
        record, table = tx.get(MACHINES, machine_id), self._table
        assert record is not None, "it was changed in this transaction"
        match flow.name:
            case CREATE.name | START.name:
                assert isinstance(input, Launch)
                if input.launch:
                    table.change(tx, record, Happened("start", "started"), state=State.STARTED, awaited=None)
                else:
                    self._rest(tx, record)
            case STOP.name:
                self._rest(tx, record)
            case DESTROY.name:
                table.remove(tx, record, Happened("destroy", "destroyed"))
            case _:
                raise AssertionError(f"{flow.name} is not played by a worker without flows")

    def _rest(self, tx: Tx, record: MachineRecord) -> None:
        happened = Happened("stop", "stopped")
        self._table.change(tx, record, happened, state=State.STOPPED, holds=at_rest(record), awaited=None)
