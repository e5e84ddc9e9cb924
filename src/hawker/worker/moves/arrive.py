"""Flow `arrive`, at the destination of a move: a machine that came suspended is suspended here. The files of its memory
are put in place, over the disks and the network of this node. Until then it has no instance, and nobody starts it; when
it cannot be, its memory is lost, and its next start is a cold one.
"""

from hawker.errors import SnapshotLost
from hawker.fsm.contract import Abort, Done, EndedRun, Ending, Flow, Outcome, Step
from hawker.ids import InstanceId
from hawker.machine import State
from hawker.record.machine import MACHINES, MachineRecord, machine_id_of, machine_resource
from hawker.record.move import INCOMING, IncomingRecord, IncomingState
from hawker.runtime.driver import Exit
from hawker.store.contract import Reader, Tx
from hawker.volume.attachment import volume_id_of
from hawker.volume.moved_files import MovedFile, draft_of
from hawker.worker.exits import record_exit
from hawker.worker.lifecycle.deps import Context, FlowDeps
from hawker.worker.lifecycle.start import Launch, spec_of_launch
from hawker.worker.lifecycle.stop import PATIENT, REST, Rest
from hawker.worker.moves.ownership import taken_back
from hawker.worker.moves.unit import files_of, memories_of, memory_files, reveal_suspended

ARRIVE_FLOW = "arrive"


class ArriveInput(Launch, frozen=True, kw_only=True):
    """The instance that is to go on, and by which move it came."""

    move: str


def is_arriving(reader: Reader, came: IncomingRecord) -> bool:
    """Whether what was copied of its memory is still needed."""
    record = None if came.machine is None or came.memory is None else reader.get(MACHINES, came.machine.id)
    return (
        came.state is IncomingState.ACCEPTED
        and record is not None
        and record.state is State.SUSPENDING
        and record.generation == came.generation
    )


def _arriving(context: Context[ArriveInput]) -> tuple[MachineRecord, IncomingRecord] | None:
    """None once somebody wants something else of the machine."""
    came = context.deps.store.get(INCOMING, context.input.move)
    record = context.deps.store.get(MACHINES, machine_id_of(context))
    return (record, came) if record is not None and came is not None and is_arriving(context.deps.store, came) else None


async def network(context: Context[ArriveInput]) -> Outcome:
    """Makes the network as a start does; the machine is reached here from now on."""
    deps, found = context.deps, _arriving(context)
    if found is None:
        return Done(result="")
    gone = await taken_back(deps, found[0].id)
    if gone is not None:
        return gone
    if deps.networks is None:
        return Done(result="")
    netns = await deps.networks.ensure(found[0].id, found[0].network)
    await deps.enforcer.renew_for(found[0].app)
    return Done(result=netns)


async def rootfs(context: Context[ArriveInput]) -> Outcome:
    """Finds the path of the root's layer that came along."""
    found = _arriving(context)
    root = None if found is None else found[1].root
    return Done(
        result="" if root is None else files_of(context.deps).path(MovedFile(machine_id_of(context), root.layer))
    )


async def volume(context: Context[ArriveInput]) -> Outcome:
    """Finds the path of the volume's file. Nobody looks into it: what it lacks is in the memory."""
    found = _arriving(context)
    volume_id = None if found is None else volume_id_of(found[0].config)
    return Done(result="" if volume_id is None else files_of(context.deps).path(MovedFile(volume_id)))


async def take_in(context: Context[ArriveInput]) -> Outcome:
    """Takes the memory in: from the driver's record on the machine is suspended here, also after a host's crash."""
    deps, found = context.deps, _arriving(context)
    if found is None:
        return Done()
    memories, (record, came) = memories_of(deps), found
    assert memories is not None, "nothing is accepted that cannot go on here"
    await memories.make_place(record.id)
    for file in memory_files(came):
        await files_of(deps).adopt(draft_of(came.move, file), MovedFile(record.id, memory=memories.came(file.memory)))
        context.reach("placed")
    try:
        await memories.take_in(spec_of_launch(context, record))
    except SnapshotLost as error:
        return Abort(error)
    context.reach("taken_in")
    await reveal_suspended(deps, came)
    return Done(commit=lambda tx: _suspended(tx, context))


def _suspended(tx: Tx, context: Context[ArriveInput]) -> None:
    """Whoever wants something else of it meanwhile has to end it first."""
    record, came = tx.get(MACHINES, machine_id_of(context)), tx.get(INCOMING, context.input.move)
    if record is None or came is None or came.memory is None or record.running is not None:
        return
    state = State.SUSPENDED if record.state is State.SUSPENDING else record.state
    context.deps.table.change(tx, record, state=state, running=came.memory.running)


def lose(tx: Tx, ended: EndedRun[ArriveInput]) -> None:
    """Settles a machine whose memory could not be taken in; its history says why."""
    deps: FlowDeps = ended.deps
    came, record = tx.get(INCOMING, ended.input.move), tx.get(MACHINES, ended.resource.id)
    if ended.ending is Ending.DONE or came is None or came.memory is None or record is None:
        return
    if record.state is not State.SUSPENDING or record.running is not None:
        return
    held = deps.table.change(tx, record, running=came.memory.running)
    fault = f"the memory that came with the machine cannot be used: {ended.error or 'cancelled'}"
    exit = Exit(exit_code=137, signal=9, exited_at=deps.clock.now(), fault=fault)
    record_exit(tx, deps.table, held, InstanceId(came.memory.running.instance_id), exit)
    deps.runs.accept(tx, REST.name, machine_resource(record.id), Rest())


ARRIVE = Flow(
    name=ARRIVE_FLOW,
    input=ArriveInput,
    steps=(
        Step("network", network, timeout_s=60, backoff=PATIENT),
        Step("rootfs", rootfs),
        Step("volume", volume),
        Step("take_in", take_in, timeout_s=600, backoff=PATIENT, durable=True, points=("placed", "taken_in")),
    ),
    on_end=lose,
)
