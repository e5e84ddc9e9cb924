"""Answers about the memory of a running machine."""

from hawker.api.contract.machine import MachineParams
from hawker.api.contract.memory import (
    GET_MEMORY,
    RECLAIM_MEMORY,
    SET_MEMORY,
    MemoryAnswer,
    ReclaimAnswer,
    ReclaimRequest,
    SetMemoryRequest,
)
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery
from hawker.clock import Clock
from hawker.errors import Unprocessable
from hawker.runtime.driver import Memory
from hawker.worker import leases
from hawker.worker.handlers.target import MachineFinder, target_of
from hawker.worker.memory import MachineMemory


class MemoryHandlers:
    def __init__(self, machines: MachineFinder, clock: Clock, memory: MachineMemory) -> None:
        self._machines = machines
        self._clock = clock
        self._memory = memory

    def bind(self, handlers: Handlers) -> None:
        handlers.on(GET_MEMORY, self.get)
        handlers.on(SET_MEMORY, self.set)
        handlers.on(RECLAIM_MEMORY, self.reclaim)

    async def get(self, call: Call[MachineParams, NoQuery, None]) -> MemoryAnswer:
        return _shown(await self._memory.read(self._machines.find(call.params)))

    async def set(self, call: Call[MachineParams, NoQuery, SetMemoryRequest]) -> MemoryAnswer:
        self._machines.find(call.params)
        return _shown(await self._memory.set_limit(target_of(call.params, call.nonce), call.body.limit_mb))

    async def reclaim(self, call: Call[MachineParams, NoQuery, ReclaimRequest]) -> ReclaimAnswer:
        record = self._machines.find(call.params)
        leases.check(record, call.nonce, self._clock.now())
        if call.body.amount_mb < 0:
            raise Unprocessable(f"amount_mb must not be negative, but is {call.body.amount_mb}")
        return ReclaimAnswer(actual_mb=await self._memory.reclaim(record, call.body.amount_mb))


def _shown(found: Memory) -> MemoryAnswer:
    return MemoryAnswer(limit_mb=found.limit_mib, available_mb=found.available_mib)
