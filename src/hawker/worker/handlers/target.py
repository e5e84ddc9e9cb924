"""Which machine a call is about."""

from hawker.api.contract.machine import MachineParams
from hawker.api.contract.metadata import MetadataKeyParams
from hawker.ids import AppName
from hawker.record.machine import MachineRecord, Target
from hawker.worker.assembly import AssembledWorker


def target_of(params: MachineParams, nonce: str | None) -> Target:
    """`nonce` is the lease's that the call carries."""
    return Target(AppName(params.app_name), params.machine_id, nonce)


def find(parts: AssembledWorker, params: MachineParams | MetadataKeyParams) -> MachineRecord:
    """Raises `NotFound` for the app first, then for the machine."""
    store = parts.deps.store
    app = parts.apps.get(store, params.app_name)
    return parts.deps.table.find(store, app.name, params.machine_id)
