"""A fake node's answers about suspending and the memory of machines: always the same, but for a limit just set."""

from typing import Any

from hawker.api import bodies
from hawker.api.route import Call


class FakeMemory:
    async def _suspend_machine(self, call: Call[Any, Any, Any]) -> bodies.SuspendAnswer:
        return bodies.SuspendAnswer(ok=True, kind="freeze")

    async def _get_memory(self, call: Call[Any, Any, Any]) -> bodies.MemoryAnswer:
        return bodies.MemoryAnswer(limit_mb=256, available_mb=200)

    async def _set_memory(self, call: Call[Any, Any, Any]) -> bodies.MemoryAnswer:
        return bodies.MemoryAnswer(limit_mb=call.body.limit_mb, available_mb=1)

    async def _reclaim_memory(self, call: Call[Any, Any, Any]) -> bodies.ReclaimAnswer:
        return bodies.ReclaimAnswer(actual_mb=40)
