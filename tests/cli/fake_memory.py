"""A fake node's answers about suspending and the memory of machines: always the same, but for a limit just set."""

from typing import Any

from hawker.api.contract.machine import SuspendAnswer
from hawker.api.contract.machine_operation import MemoryAnswer, ReclaimAnswer
from hawker.api.route import Call


class FakeMemory:
    async def _suspend_machine(self, call: Call[Any, Any, Any]) -> SuspendAnswer:
        return SuspendAnswer(ok=True, kind="freeze")

    async def _get_memory(self, call: Call[Any, Any, Any]) -> MemoryAnswer:
        return MemoryAnswer(limit_mb=256, available_mb=200)

    async def _set_memory(self, call: Call[Any, Any, Any]) -> MemoryAnswer:
        return MemoryAnswer(limit_mb=call.body.limit_mb, available_mb=1)

    async def _reclaim_memory(self, call: Call[Any, Any, Any]) -> ReclaimAnswer:
        return ReclaimAnswer(actual_mb=40)
