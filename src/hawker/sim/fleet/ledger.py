"""What clients of a simulated fleet were told, and what was found."""

from dataclasses import dataclass

from hawker.clock import Clock
from hawker.ids import MachineId
from hawker.proof.fleet import Promised
from hawker.proof.violation import Violation
from hawker.sim.trace import Kind, Trace


@dataclass(slots=True)
class Ordered:
    """By one client, under one label. `machine` is what it was told that the order became."""

    label: str
    app: str
    key: str | None
    machine: MachineId | None = None
    destroyed: bool = False  # or asked for


class Ledger:
    """`operations` are the calls that were answered, refusals included."""

    def __init__(self, clock: Clock, trace: Trace) -> None:
        self.orders: dict[str, Ordered] = {}
        self.found: list[Violation] = []
        self.operations = self.filled = self.lost = 0
        self._clock, self._trace = clock, trace

    def say(self, kind: Kind, text: str) -> None:
        self._trace.add(self._clock.monotonic(), kind, text)

    def find(self, found: Violation) -> None:
        if found not in self.found:
            self.found.append(found)
            self.say(Kind.FOUND, str(found))

    @property
    def promised(self) -> list[Promised]:
        return [
            Promised(order=order.label, machine=order.machine)
            for order in self.orders.values()
            if order.machine is not None and not order.destroyed
        ]
