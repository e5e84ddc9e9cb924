"""Sees to it that the history of every destroyed machine reaches the archive, however long that takes, by flow
`archive`: one file to where archives go, then the store may forget it. Whatever fails, the history stays in the store.

What waits, waits in the store: a few runs are open at a time, and an archive that does not take anything is asked again
now and then before the next ones begin. So a bucket that is away for a day costs neither memory nor a history.
"""

from collections.abc import AsyncIterator
from typing import Any, Protocol, TypeAlias, TypeVar

import anyio
import anyio.lowlevel
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from hawker.archive.archive import Archive
from hawker.clock import Clock
from hawker.containment import contained
from hawker.errors import HawkerError, NotServed
from hawker.fsm import journal
from hawker.fsm.contract import Abort, Backoff, Done, Flow, Outcome, Resource, Step, StepContext, WhenBusy
from hawker.fsm.run import State
from hawker.fsm.runner import Runner
from hawker.history.machine_history import destroyed_history, histories_waiting
from hawker.ids import MachineId, RunId
from hawker.log import bind
from hawker.record.machine import ARCHIVED, DESTROYED, ArchiveRecord, machine_id_of, machine_resource
from hawker.store.contract import Reader, Store, Tx

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
    """As packed; the step after it looks whether the archive has so many."""


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


_log = bind("hawker.archivist")

PARALLEL = 4
AGAIN_S = 300.0  # after a run that failed, for the same machine
LONGEST_RUN_S = 3600.0
_PAGE = 200


class Archivist:
    """`serve` begins the runs of flow `archive`; nobody else does, except an operator who retries one."""

    def __init__(self, store: Store, clock: Clock, runner: Runner[Any], archive: Archive) -> None:
        self._store = store
        self._clock = clock
        self._runner = runner
        self._archive = archive
        self._under_way: set[MachineId] = set()
        self._doubtful = True  # whether the archive takes anything is to be seen first

    async def serve(self, every_s: float) -> None:
        sender, receiver = anyio.create_memory_object_stream[MachineId](0)
        async with anyio.create_task_group() as tasks, sender, receiver:
            for _ in range(PARALLEL):
                tasks.start_soon(self._work, receiver)
            while True:
                await self._until_taken(every_s)
                with contained("histories are looked for"):
                    try:
                        await self._hand_out(sender)
                    except HawkerError as error:
                        _log.error("cannot look for histories to archive", extra={"error": str(error)})
                if not self._doubtful:
                    await self._clock.sleep(every_s)

    async def _until_taken(self, every_s: float) -> None:
        """Returns once the archive takes something, if that was in doubt; says so for as long as it does not."""
        while self._doubtful:
            try:
                await self._archive.check()
                self._doubtful = False
                _log.info("archive is ready", extra={"archive": self._archive.name})
            except HawkerError as error:
                fields = {
                    "archive": self._archive.name,
                    "error": str(error),
                    "waiting": histories_waiting(self._store),
                }
                _log.warning("histories cannot be archived", extra=fields)
                await self._clock.sleep(every_s)

    async def _hand_out(self, sender: MemoryObjectSendStream[MachineId]) -> None:
        """Each history that waits to whoever is free, until the archive is in doubt again."""
        async for machine_id in self._due():
            if self._doubtful:
                return
            if machine_id not in self._under_way:
                await sender.send(machine_id)

    async def _due(self) -> AsyncIterator[MachineId]:
        """In pages, so that a store full of destroyed machines keeps nobody waiting."""
        store, after = self._store, None
        while histories_waiting(store) and (page := store.sizes(DESTROYED, after=after, limit=_PAGE)):
            for key, _ in page:
                if self._is_due(store, MachineId(key)):
                    yield MachineId(key)
                after = key
            await anyio.lowlevel.checkpoint()

    def _is_due(self, reader: Reader, machine_id: MachineId) -> bool:
        if reader.get(ARCHIVED, machine_id) is not None or not reader.sizes(DESTROYED, machine_id, limit=1):
            return False
        if journal.active(reader, machine_resource(machine_id)) is not None:
            return False  # its last word is not spoken
        last = next(journal.newest(reader, history_resource(machine_id)), None)
        ended_at = None if last is None else last.ended_at
        return ended_at is None or ended_at + AGAIN_S <= self._clock.now()

    async def _work(self, receiver: MemoryObjectReceiveStream[MachineId]) -> None:
        async for machine_id in receiver:
            if self._doubtful:
                continue  # it comes again when that is settled
            self._under_way.add(machine_id)
            try:
                await self._archive_one(machine_id)
            finally:
                self._under_way.discard(machine_id)

    async def _archive_one(self, machine_id: MachineId) -> None:
        """One run from its beginning to its end. One that fails puts the archive in doubt."""
        try:
            run_id = await self._store.write(lambda tx: self._begin(tx, machine_id))
            if run_id is not None and (await self._runner.wait(run_id, LONGEST_RUN_S)).state is not State.DONE:
                self._doubtful = True
        except HawkerError as error:
            self._doubtful = True
            _log.warning("history not archived", extra={"machine": machine_id, "error": str(error)})

    def _begin(self, tx: Tx, machine_id: MachineId) -> RunId | None:
        """The run that is open for it is joined; none for a machine that was forgotten or archived meanwhile."""
        if not self._is_due(tx, machine_id):
            return None
        return self._runner.accept(tx, ARCHIVE, history_resource(machine_id), Export(), when_busy=WhenBusy.JOIN)
