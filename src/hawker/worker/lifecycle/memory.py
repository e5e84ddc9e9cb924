"""Flow `memory`: another limit of memory for the instance that runs. The next one has the config's again."""

import msgspec

from hawker.errors import NotFound
from hawker.fsm.contract import Done, EndedRun, Ending, Flow, Outcome, Step
from hawker.ids import InstanceId
from hawker.machine import State
from hawker.record.machine import MACHINES, MachineRecord, machine_id_of
from hawker.store.contract import Reader, Tx
from hawker.worker.lifecycle.deps import Context, FlowDeps
from hawker.worker.lifecycle.start import runs


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """The new limit of an instance's memory, in MiB. `held_mib` is what the machine held before room was taken for
    it."""

    instance_id: InstanceId
    limit_mib: int
    """The limit of the instance's memory in MiB, 1 or more; the next start has the config's again."""
    held_mib: int


async def limit(context: Context[Limit]) -> Outcome:
    if _find_meant(context.deps.store, context) is None:
        return Done()
    try:
        await context.deps.driver.limit_memory(machine_id_of(context), context.input.limit_mib)
    except NotFound:
        return Done()
    return Done(commit=lambda tx: _limited(tx, context))


def _limited(tx: Tx, context: Context[Limit]) -> None:
    record = _find_meant(tx, context)
    if record is not None and record.running is not None:
        running = msgspec.structs.replace(record.running, memory_mib=context.input.limit_mib)
        context.deps.table.change(tx, record, running=running)


def give_back(tx: Tx, ended: EndedRun[Limit]) -> None:
    """The room that was taken for a limit that could not be set."""
    deps: FlowDeps = ended.deps
    record = _find_meant(tx, ended)
    if ended.ending is not Ending.DONE and record is not None and record.state is State.STARTED:
        holds = msgspec.structs.replace(record.holds, memory_mib=ended.input.held_mib)
        deps.table.change(tx, record, holds=holds)


def _find_meant(reader: Reader, run: Context[Limit] | EndedRun[Limit]) -> MachineRecord | None:
    record = reader.get(MACHINES, run.resource.id)
    if record is None or not runs(record):
        return None
    assert record.running is not None
    return record if record.running.instance_id == run.input.instance_id else None


LIMIT = Step("limit", limit, points=("limited",))

MEMORY = Flow(name="memory", input=Limit, steps=(LIMIT,), on_end=give_back)
