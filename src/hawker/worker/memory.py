"""The memory of a machine that runs: what it has, another limit, and what it can give back at once.

A higher limit takes room in the transaction that accepts the change. A lower one gives none back: the machine's next
start needs what its config says.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from hawker.clock import Clock
from hawker.config import guest
from hawker.config.rules import MIN_MEMORY_MIB
from hawker.errors import Conflict, NotServed, Unprocessable, WrongState
from hawker.failpoint import reach
from hawker.fsm import journal
from hawker.fsm.run import State as RunState
from hawker.fsm.run import error_of
from hawker.fsm.runner import Runner
from hawker.ids import MachineId, RunId
from hawker.machine import WITH_INSTANCE, Operation, judge
from hawker.node import Capacity, shortfall
from hawker.record.machine import MachineRecord, MachineTarget, machine_resource
from hawker.runtime.driver import Driver, Memory
from hawker.store.contract import Store, Tx
from hawker.worker import leases
from hawker.worker.lifecycle.memory import MEMORY, Limit
from hawker.worker.table import MachineTable

_ENDS_WITHIN_S = 30.0


class MachineMemory:
    """`room` answers what the node has."""

    def __init__(
        self,
        store: Store,
        table: MachineTable,
        driver: Driver,
        clock: Clock,
        runner: Runner[Any],
        room: Callable[[], Capacity],
    ) -> None:
        self._store = store
        self._table = table
        self._driver = driver
        self._clock = clock
        self._runner = runner
        self._room = room

    async def read(self, record: MachineRecord) -> Memory:
        """The memory of a machine's instance. Raises `NotServed` where machines have no limits, `WrongState` when this
        one has no instance."""
        self._check_served()
        if record.state not in WITH_INSTANCE:
            raise WrongState(f"unable to read the memory of machine from current state: '{record.state}'")
        return await self._driver.memory(record.id)

    async def reclaim(self, record: MachineRecord, amount_mib: int) -> int:
        """Reclaims memory of a machine and returns how many MiB it was in fact."""
        await self.read(record)
        return await self._driver.reclaim_memory(record.id, amount_mib)

    async def set_limit(self, target: MachineTarget, limit_mib: int) -> Memory:
        """Sets the limit of a machine's memory. Raises `Conflict` when the host is full or another change is under way,
        `WrongState` when the machine uses more than that."""
        self._check_served()

        def apply(tx: Tx) -> RunId:
            record = self._table.find(tx, target.app, target.machine_id)
            leases.check(record, target.nonce, self._clock.now())
            judge(Operation.MEMORY, record.state)
            if journal.active(tx, machine_resource(record.id)) is not None:
                raise Conflict("another change of the machine is under way")
            _check_bounds(record, limit_mib)
            return self._accept(tx, record, limit_mib)

        reach("memory.accept.before")
        run_id = await self._store.write(apply)
        reach("memory.accept.after")
        run = await self._runner.wait(run_id, _ENDS_WITHIN_S)
        if run.state is not RunState.DONE:
            raise error_of(run.fault) if run.fault is not None else Conflict("the change was overtaken")
        return await self._driver.memory(MachineId(target.machine_id))

    def _accept(self, tx: Tx, record: MachineRecord, limit_mib: int) -> RunId:
        assert record.running is not None, "a started machine has an instance"
        held_mib, asked_mib = record.holds.memory_mib, self._with_overhead(record, limit_mib)
        asked = msgspec.structs.replace(record.holds, memory_mib=asked_mib)
        if asked_mib > held_mib and shortfall(self._room(), self._table.used(tx).minus(record.holds), asked):
            raise Conflict(
                "could not reserve resource for machine: insufficient memory available to fulfill request on the "
                "current host"
            )
        self._table.change(tx, record, holds=asked)
        meant = Limit(instance_id=record.running.instance_id, limit_mib=limit_mib, held_mib=held_mib)
        return self._runner.accept(tx, MEMORY, machine_resource(record.id), meant)

    def _with_overhead(self, record: MachineRecord, limit_mib: int) -> int:
        return max(limit_mib, guest(record.config).memory_mb) + self._driver.features.overhead_mib

    def _check_served(self) -> None:
        driver = self._driver
        if not driver.features.limits:
            what = "its machines have no limits"
            raise NotServed(f"a machine's memory is not served by this node's driver ({driver.name}): {what}")


def _check_bounds(record: MachineRecord, limit_mib: int) -> None:
    own = guest(record.config).memory_mb
    most = max(own, (record.config.guest.max_memory_mb if record.config.guest is not None else None) or 0)
    if not MIN_MEMORY_MIB <= limit_mib <= most:
        why = "the larger of its memory_mb and its max_memory_mb"
        raise Unprocessable(f"limit_mb must be between {MIN_MEMORY_MIB} and {most} ({why}), not {limit_mib}")
