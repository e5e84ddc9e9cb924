"""Who waits for a machine to change, and how they hear of it. In memory: a waiter always re-reads the record."""

from collections.abc import Callable
from typing import TypeVar

import anyio

from hawker.ids import MachineId

T = TypeVar("T")


class Changes:
    """One event per machine that somebody waits for; set and dropped at each change."""

    def __init__(self) -> None:
        self._waiting: dict[MachineId, anyio.Event] = {}
        self._listeners: list[Callable[[MachineId], None]] = []

    def listen(self, listener: Callable[[MachineId], None]) -> None:
        """Call `listener` after each committed change; it must not block."""
        self._listeners.append(listener)

    def notify(self, machine_id: MachineId) -> None:
        """Wake everyone who waits for this machine. Called after the commit."""
        event = self._waiting.pop(machine_id, None)
        if event is not None:
            event.set()
        for listener in self._listeners:
            listener(machine_id)

    async def until(self, machine_id: MachineId, check: Callable[[], T | None]) -> T:
        """The first answer of `check` that is not None, asked now and after each change. The caller sets a deadline."""
        while (answer := check()) is None:
            event = self._waiting.setdefault(machine_id, anyio.Event())
            try:
                await event.wait()
            finally:
                self._leave(machine_id, event)
        return answer

    @property
    def waiting(self) -> int:
        """For how many machines somebody waits."""
        return len(self._waiting)

    def _leave(self, machine_id: MachineId, event: anyio.Event) -> None:
        """The last who gives up takes the event with him."""
        if not event.is_set() and event.statistics().tasks_waiting == 0:
            self._waiting.pop(machine_id, None)
