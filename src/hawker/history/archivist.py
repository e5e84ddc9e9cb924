"""Sees to it that the history of every destroyed machine reaches the archive, however long that takes.

What waits, waits in the store: a few runs are open at a time, and an archive that does not take anything is asked again
now and then before the next ones begin. So a bucket that is away for a day costs neither memory nor a history.
"""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from hawker.archive.archive import Archive
from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.fsm import journal
from hawker.fsm.contract import WhenBusy
from hawker.fsm.run import State
from hawker.fsm.runner import Runner
from hawker.history.flow import ARCHIVE, Export, history_resource
from hawker.history.machine_history import histories_waiting
from hawker.ids import MachineId, RunId
from hawker.log import bind
from hawker.record.machine import ARCHIVED, DESTROYED, machine_resource
from hawker.store.contract import Reader, Store, Tx

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
        while histories_waiting(store) and (page := list(store.scan(DESTROYED, after=after, limit=_PAGE))):
            for key, record in page:
                if self._is_due(store, record.id):
                    yield record.id
                after = key
            await anyio.lowlevel.checkpoint()

    def _is_due(self, reader: Reader, machine_id: MachineId) -> bool:
        if reader.get(DESTROYED, machine_id) is None or reader.get(ARCHIVED, machine_id) is not None:
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
