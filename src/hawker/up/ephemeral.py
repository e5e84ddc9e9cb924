"""The end of an ephemeral node: every machine is destroyed, so that nothing of it is left on the host."""

import anyio

from hawker.ids import MachineId
from hawker.log import bind
from hawker.machine import GONE
from hawker.record.machine import MACHINES, Target
from hawker.worker.assembly import AssembledWorker

_log = bind("hawker.ephemeral")
DEADLINE_S = 60.0


async def destroy_everything(parts: AssembledWorker) -> None:
    """Returns when no machine is left, or with a warning when the deadline is over."""
    store = parts.deps.store
    for _, record in list(store.scan(MACHINES)):
        if record.state not in GONE:
            nonce = record.lease.nonce if record.lease else None
            await parts.operations.destroy(Target(record.app, record.id, nonce), force=True)
    with anyio.move_on_after(DEADLINE_S) as scope:
        for key, _ in list(store.scan(MACHINES)):
            await _until_gone(parts, MachineId(key))
    if scope.cancelled_caught:
        _log.warning("machines left behind", extra={"count": store.count(MACHINES)})
        return
    if parts.deps.rootfs is not None:
        await parts.deps.rootfs.withdraw()
    if parts.deps.networks is not None:
        await parts.deps.networks.withdraw()


async def _until_gone(parts: AssembledWorker, machine_id: MachineId) -> None:
    await parts.changes.until(machine_id, lambda: True if parts.deps.store.get(MACHINES, machine_id) is None else None)
