"""Flow `archive`: the history of a destroyed machine, as one file to where archives go; then the store may forget it.

A step that comes again does the same again: the file follows from what the store has, its place from the machine's id.
Whatever fails, the history stays in the store, and the archivist asks for another run.
"""

from typing import Protocol, TypeAlias, TypeVar

import msgspec

from hawker.archive.archive import Archive
from hawker.clock import Clock
from hawker.errors import NotServed
from hawker.fsm.contract import Abort, Backoff, Done, Flow, Outcome, Resource, Step, StepContext
from hawker.history.machine_history import destroyed_history
from hawker.ids import MachineId
from hawker.record.machine import ArchiveRecord, machine_id_of
from hawker.store.contract import Store, Tx

I = TypeVar("I", bound=msgspec.Struct)  # noqa: E741 - a flow's input


class DestroyedMachines(Protocol):
    """The worker's table of machines, as far as it concerns those that are destroyed."""

    def archived(self, tx: Tx, machine_id: MachineId, record: ArchiveRecord) -> None:
        """Its history is in the archive, whole."""


class HistoryDeps(Protocol):
    """`archive` is None where histories are not kept."""

    @property
    def store(self) -> Store: ...
    @property
    def table(self) -> DestroyedMachines: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def archive(self) -> Archive | None: ...


Context: TypeAlias = StepContext[HistoryDeps, I]


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing to say: the store has it all."""


def history_resource(machine_id: MachineId) -> Resource:
    """Of its own kind: the runs that export a history, however many fail, are no part of it and drop none of it."""
    return Resource(kind="history", id=machine_id)


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """How large the file is; 0 when there was nothing to archive."""

    bytes: int


async def write(context: Context[Export]) -> Outcome:
    """Prepare the file on this host. Nothing is left to do for a machine that was archived and dropped meanwhile."""
    return Done(result=await _write(context))


async def send(context: Context[Export]) -> Outcome:
    """Have the file in the archive, written anew if it is no longer here."""
    archive, machine_id, written = _archive(context), machine_id_of(context), context.result("write", Sent)
    if written.bytes and not archive.is_written(machine_id):
        written = await _write(context)
    return Done(result=Sent(bytes=await archive.send(machine_id)) if written.bytes else written)


async def confirm(context: Context[Export]) -> Outcome:
    """See that it is there, whole; only this allows the store to forget."""
    archive, machine_id, sent = _archive(context), machine_id_of(context), context.result("send", Sent)
    if not sent.bytes:
        return Done()
    found = await archive.size(machine_id)
    if found != sent.bytes:
        return Abort(f"the archive {archive.name} has {found or 0} of {sent.bytes} bytes")
    await archive.discard(machine_id)
    return Done(commit=lambda tx: _archived(tx, context, sent))


def _archived(tx: Tx, context: Context[Export], sent: Sent) -> None:
    deps = context.deps
    record = ArchiveRecord(archive=_archive(context).name, bytes=sent.bytes, at=context.clock.now())
    deps.table.archived(tx, machine_id_of(context), record)


async def _write(context: Context[Export]) -> Sent:
    archive, store = _archive(context), context.deps.store
    with store.snapshot() as reader:
        history = destroyed_history(reader, machine_id_of(context))
    return Sent(bytes=0 if history is None else await archive.write(history))


def _archive(context: Context[Export]) -> Archive:
    """Raises `NotServed` when the node was started without one since the run was accepted."""
    if context.deps.archive is None:
        raise NotServed("this node has no archive: start it with --archive")
    return context.deps.archive


_PATIENT = Backoff(attempts=8, first_s=1.0, cap_s=60.0)

ARCHIVE = Flow(
    name="archive",
    input=Export,
    steps=(
        Step("write", write, timeout_s=120, backoff=_PATIENT, points=("packed",)),
        Step("send", send, timeout_s=600, backoff=_PATIENT, points=("sent",)),
        Step("confirm", confirm, backoff=_PATIENT, points=("discarded",)),
    ),
)
