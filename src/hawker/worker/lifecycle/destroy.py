"""Flow `destroy`: end the instance and remove every trace of the machine from the host, then from the table."""

from hawker.fsm.contract import Done, Flow, Outcome, Step
from hawker.record.machine import MACHINES, machine_id_of
from hawker.store.contract import Tx
from hawker.worker.lifecycle.deps import Context, drain_output, machine_in, machine_of
from hawker.worker.lifecycle.stop import END, PATIENT, Halt
from hawker.worker.lifecycle.volume_mount import unmount_volume
from hawker.worker.table import Happened


async def clear(context: Context[Halt]) -> Outcome:
    """Remove the instance's processes, cgroup and files."""
    await drain_output(context)
    await context.deps.driver.destroy(machine_id_of(context))
    return Done()


async def remove(context: Context[Halt]) -> Outcome:
    """Unmount the root filesystem and remove the machine's directory. Its volume is given back as it is."""
    deps, machine_id = context.deps, machine_id_of(context)
    await unmount_volume(deps, deps.store.get(MACHINES, machine_id))
    if deps.rootfs is not None:
        await deps.rootfs.remove(machine_id)
    return Done()


async def unplug(context: Context[Halt]) -> Outcome:
    deps, record = context.deps, machine_of(context)
    if deps.networks is not None:
        await deps.networks.delete(record.id)
    await deps.enforcer.renew_soon(record.app, without={record.id})
    return Done()


async def forget(context: Context[Halt]) -> Outcome:
    return Done(commit=lambda tx: _forget(tx, context))


def _forget(tx: Tx, context: Context[Halt]) -> None:
    table = context.deps.table
    table.remove(tx, machine_in(tx, context), Happened("destroy", "destroyed"))


DESTROY = Flow(
    name="destroy",
    input=Halt,
    steps=(
        END,
        Step("clear", clear, points=("killed", "cleared"), backoff=PATIENT),
        Step("remove", remove, points=("given_back", "detached"), backoff=PATIENT),
        Step("unplug", unplug, points=("unrouted", "unlinked", "unbound"), backoff=PATIENT),
        Step("forget", forget),
    ),
)
