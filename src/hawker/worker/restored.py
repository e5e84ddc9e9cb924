"""After a backup was restored: the store is older than the host, and what the host says is the truth about what runs.

What runs is taken up as it is, whatever the records say; what ended meanwhile is taken up too, so that its exit is
recorded; what is not there at all was destroyed meanwhile, or the host is another, and is not started by itself. Done
once, before anything else looks at the machines.
"""

from collections.abc import Callable

import msgspec

from hawker.clock import Clock
from hawker.containment import contained
from hawker.errors import HawkerError, Unavailable
from hawker.fsm import journal
from hawker.log import bind
from hawker.machine import State
from hawker.record.machine import MACHINES, Detail, MachineRecord, Running, machine_resource
from hawker.record.node import COPY
from hawker.runtime.driver import ALIVE, Driver, Exit, Inspection, Phase
from hawker.settings import Settings
from hawker.store.contract import Durability, Reader, Store, Tx
from hawker.worker.capacity import at_rest, room_for
from hawker.worker.lifecycle.start import runs
from hawker.worker.table import Happened, MachineTable

_log = bind("hawker.restored")
_SINCE = "it ended, or was replaced, after the backup was taken"
_NOT_HERE = "nothing of it was on the host when a backup was restored"
_ENDING_FLOWS = frozenset({"stop", "restart", "update", "destroy"})
"""Under way when the backup was taken: they end whatever runs, so they go on as they are."""

_NOT_WRITTEN = (Unavailable, OSError)
"""What the store raises where it is at fault, and no record."""


class InstanceAdoption:
    """Records what runs on the host, or what does not, against what the records say."""

    def __init__(self, store: Store, table: MachineTable, driver: Driver, settings: Settings, clock: Clock) -> None:
        self._store = store
        self._table = table
        self._driver = driver
        self._settings = settings
        self._clock = clock

    async def take_up_restored(self) -> None:
        """Takes up a store that was restored. Does nothing unless the store carries the mark of a backup. A crash in
        the middle begins again. Raises `Unavailable` or `OSError` where the store cannot be written now: the mark is
        there still, and the next boot begins again."""
        copy = self._store.get(COPY, "self")
        if copy is None:
            return
        _log.warning("the store was restored from a backup", extra={"taken_at": copy.taken_at})
        for _, record in list(self._store.scan(MACHINES)):
            with contained("a machine of a restored store is taken up", _NOT_WRITTEN, machine=record.id):
                try:
                    seen = await self._driver.inspect(record.id)
                except (HawkerError, OSError) as error:
                    _log.error("cannot inspect", extra={"machine": record.id, "error": str(error)})
                    continue
                await self._store.write(self._taking_up(record, seen), Durability.ORDERED)
        await self._store.write(lambda tx: tx.delete(COPY, "self"))

    def _taking_up(self, known: MachineRecord, seen: Inspection) -> Callable[[Tx], None]:
        def apply(tx: Tx) -> None:
            record = tx.get(MACHINES, known.id)
            if record is None or _is_being_ended(tx, record):
                return
            if _is_newer(record, seen):
                self.adopt(tx, record, seen)
            elif runs(record) and seen.phase is Phase.ABSENT:
                self._rest(tx, record)
            elif runs(record):
                self._hold(tx, record, seen)

        return apply

    def adopt(self, tx: Tx, record: MachineRecord, seen: Inspection) -> MachineRecord:
        """Record that the machine has this instance, whether it still runs or not. No launch is awaited any more, so
        one that was to come gives way."""
        assert seen.instance_id is not None
        _log.warning("instance taken up", extra={"machine": record.id, "instance": seen.instance_id})
        if runs(record):
            record = self._ended(tx, record, _SINCE)
        adopted = self._table.change(
            tx,
            record,
            Happened("start", "started"),
            state=State.STARTED,
            running=Running(instance_id=seen.instance_id, pid=seen.pid, started_at=seen.started_at),
            holds=room_for(self._settings, self._driver.features.overhead_mib, record.config),
            previous=None,
            awaited=None,
        )
        self._hold(tx, adopted, seen)
        return adopted

    def _hold(self, tx: Tx, record: MachineRecord, seen: Inspection) -> None:
        """The instance that it knows was suspended, or resumed, after the backup was taken."""
        if seen.phase is Phase.SUSPENDED and record.state is State.STARTED:
            self._table.change(tx, record, Happened("suspend", "suspended"), state=State.SUSPENDED)
        elif seen.phase is Phase.RUNNING and record.state is State.SUSPENDED:
            resumed = Happened("start", "started", detail=Detail(resumed=True))
            self._table.change(tx, record, resumed, state=State.STARTED)

    def _rest(self, tx: Tx, record: MachineRecord) -> MachineRecord:
        _log.warning("machine put to rest", extra={"machine": record.id, "reason": _NOT_HERE})
        ended = self._ended(tx, record, _NOT_HERE)
        holds = at_rest(record)
        return self._table.change(tx, ended, state=State.STOPPED, holds=holds, restarts=0, previous=None, awaited=None)

    def _ended(self, tx: Tx, record: MachineRecord, reason: str) -> MachineRecord:
        """The exit of an instance that nobody can know the code of."""
        assert record.running is not None
        exit = Exit(exit_code=137, signal=9, exited_at=self._clock.now(), reason=reason)
        running = msgspec.structs.replace(record.running, exit=exit, pid=None)
        return self._table.change(tx, record, Happened("exit", "stopped", detail=Detail(exit=exit)), running=running)


def _is_newer(record: MachineRecord, seen: Inspection) -> bool:
    """Whether the host has an instance that the record has not heard of. Their names sort by the time they were made;
    what runs counts in any case."""
    if seen.instance_id is None or seen.instance_id == record.awaited:
        return False
    known = record.running.instance_id if record.running is not None else ""
    if seen.phase in ALIVE:
        return seen.instance_id != known
    return seen.phase is Phase.EXITED and seen.instance_id > known


def _is_being_ended(reader: Reader, record: MachineRecord) -> bool:
    opened = journal.newest(reader, machine_resource(record.id), opened=True)
    return any(run.flow in _ENDING_FLOWS for run in opened)
