"""Workers with a bug that two clients must find."""

from typing import Any

import msgspec

from hawker.ids import MachineId
from hawker.record.machine import MachineRecord, VersionRecord
from hawker.store.contract import Reader, Tx
from hawker.worker.table import Happened, MachineTable


class GrudgingTable(MachineTable):
    """Each refresh of a lease gives it to somebody new."""

    def change(self, tx: Tx, record: MachineRecord, event: Happened | None = None, **fields: Any) -> MachineRecord:
        if fields.get("lease") is not None and record.lease is not None:
            fields["lease"] = msgspec.structs.replace(fields["lease"], nonce="e" * 16)
        return super().change(tx, record, event, **fields)


class ForgetfulTable(MachineTable):
    """An update starts the list of versions anew."""

    def versions(self, reader: Reader, machine_id: MachineId, limit: int | None = None) -> list[VersionRecord]:
        return super().versions(reader, machine_id, 1)


class CarelessTable(MachineTable):
    """Cordoning gives the machine's lease away."""

    def change(self, tx: Tx, record: MachineRecord, event: Happened | None = None, **fields: Any) -> MachineRecord:
        return super().change(tx, record, event, **(fields | {"lease": None} if "cordoned" in fields else fields))
