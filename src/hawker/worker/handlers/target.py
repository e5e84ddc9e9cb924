"""Which machine a call is about."""

from hawker.api.contract.machine import MachineParams
from hawker.api.contract.metadata import MetadataKeyParams
from hawker.ids import AppName
from hawker.record.machine import MachineRecord, MachineTarget
from hawker.store.contract import Reader
from hawker.worker.apps import AppTable
from hawker.worker.table import MachineTable


def target_of(params: MachineParams, nonce: str | None) -> MachineTarget:
    """`nonce` is the lease's that the call carries."""
    return MachineTarget(AppName(params.app_name), params.machine_id, nonce)


class MachineFinder:
    """Finds the machine that a call names."""

    def __init__(self, store: Reader, table: MachineTable, apps: AppTable) -> None:
        self._store = store
        self._table = table
        self._apps = apps

    def find(self, params: MachineParams | MetadataKeyParams) -> MachineRecord:
        """Raises `NotFound` for the app first, then for the machine."""
        app = self._apps.get(self._store, params.app_name)
        return self._table.find(self._store, app.name, params.machine_id)
