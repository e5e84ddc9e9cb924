"""A machine that ran where it was, and does not start where it moved to, goes back there, once. It is started three
times before; what starts but once has arrived.
"""

from contextlib import suppress

import anyio
import msgspec

from hawker.api.contract.move import MoveRequest
from hawker.containment import contained
from hawker.errors import HawkerError, NoRoom
from hawker.ids import MachineId
from hawker.log import bind
from hawker.machine import OFF, State
from hawker.record.machine import EVENTS, MACHINES, MachineRecord, MachineTarget
from hawker.record.move import OPEN_MOVE_OF, TRIALS, TrialRecord, newest_start
from hawker.store.contract import Durability, Reader
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.moves.orders import MachineMoves
from hawker.worker.operations import Operations

STARTS_TRIED = 3
"""Starts of a machine that came and never ran here, its first one with them."""

LOOK_S = 5.0
"""The seconds between a start that failed and the next one."""

RETRY_S = 60.0
"""The seconds after a move back that could not begin, or was aborted."""

_log = bind("hawker.moves")


class MovesBack:
    """`serve` does nothing while no machine is on trial."""

    def __init__(self, deps: FlowDeps, moves: MachineMoves, operations: Operations) -> None:
        self._deps = deps
        self._moves = moves
        self._operations = operations
        self._again_at: dict[str, float] = {}  # machine id: monotonic
        self._came = anyio.Event()
        deps.table.changes.listen(self._note)

    def _note(self, machine_id: MachineId) -> None:
        if not self._came.is_set() and self._deps.store.get(TRIALS, machine_id) is not None:
            self._came.set()

    async def serve(self) -> None:
        """Starts machines that came and failed to start again, and orders moves back, until cancelled."""
        while True:
            if self._deps.store.count(TRIALS) == 0:
                await self._came.wait()
            self._came = anyio.Event()
            with contained("machines that came are looked at"):
                try:
                    await self.look()
                except (HawkerError, OSError) as error:
                    _log.error("machines that came are not looked at", extra={"error": str(error)})
            await self._deps.clock.sleep(LOOK_S)

    async def look(self) -> None:
        """Start again what failed to start, and order the move back of what did so too often."""
        store = self._deps.store
        for machine_id, trial in list(store.scan(TRIALS)):
            record = store.get(MACHINES, machine_id)
            if record is not None and store.get(OPEN_MOVE_OF, machine_id) is not None:
                continue  # it is off for the move, which may be aborted
            if record is None or self._is_over(store, record, trial):
                await store.write(lambda tx, key=machine_id: tx.delete(TRIALS, key), Durability.ORDERED)  # type: ignore[misc]
                self._again_at.pop(machine_id, None)
            elif record.state is State.FAILED:
                await self._try(record, trial)

    def _is_over(self, reader: Reader, record: MachineRecord, trial: TrialRecord) -> bool:
        """It has run here, or somebody wants something else of it, or it was tried for long enough."""
        if record.version != trial.version or self._deps.clock.now() >= trial.until:
            return True
        if newest_start(event for _, event in reader.scan(EVENTS, f"{record.id}/")) > trial.started:
            return True
        return record.state in OFF and record.state is not State.FAILED

    async def _try(self, record: MachineRecord, trial: TrialRecord) -> None:
        """Starts that were refused, because something else is under way on it, say, count for nothing; but a node that
        has no room for it any more is none to stay at."""
        now, target = self._deps.clock.monotonic(), MachineTarget(record.app, record.id, None)
        if self._again_at.get(record.id, now) > now:
            return
        try:
            if trial.tried < STARTS_TRIED:
                with suppress(NoRoom):
                    await self._start(target, msgspec.structs.replace(trial, tried=trial.tried + 1))
                    return
            self._again_at[record.id] = now + RETRY_S
            await self._moves.of_machine(target, MoveRequest(to=trial.source, mode="cold"), back_of=trial.move)
        except HawkerError as error:
            said = {"machine": record.id, "node": trial.source, "reason": str(error)}
            _log.warning("a machine that came does not start, and does not go back yet", extra=said)

    async def _start(self, target: MachineTarget, tried: TrialRecord) -> None:
        await self._operations.start(target, also=lambda tx: tx.put(TRIALS, target.machine_id, tried), source="flyd")
