"""What clients of a simulated fleet were told, and what was found."""

from dataclasses import dataclass

from hawker.clock import Clock
from hawker.ids import MachineId, NodeId, VolumeId
from hawker.proof.fleet import Promised
from hawker.sim.harness.ledger import RunLedger
from hawker.sim.harness.trace import Trace


@dataclass(slots=True)
class Ordered:
    """By one client, under one label. `machine` is what it was told that it became; a spare `watches` another."""

    label: str
    app: str
    key: str | None
    watches: MachineId | None = None
    machine: MachineId | None = None
    destroyed: bool = False  # or asked for


@dataclass(slots=True)
class Counted:
    """Several machines ordered at once, or all of them or none. `machines` are those that were told; `refused`: it was
    said, in the first answer, that there are none."""

    label: str
    app: str
    key: str | None
    count: int
    whole: bool
    machines: tuple[MachineId, ...] = ()
    refused: bool = False


class FleetLedger(RunLedger):
    """`filled` counts the machines that were told, `lost` the calls that nobody answered."""

    def __init__(self, clock: Clock, trace: Trace) -> None:
        super().__init__(clock, trace)
        self.orders: dict[str, Ordered] = {}
        self.counted: dict[str, Counted] = {}
        self.volumes: dict[str, VolumeId] = {}  # by label, as they were told
        self.cordoned: dict[NodeId, frozenset[MachineId]] = {}  # with what was there when that was answered
        self.filled = self.lost = 0

    def spares(self) -> tuple[MachineId | None, list[MachineId]]:
        """The first machine that has spares, and these."""
        watched = next((order.watches for order in self.orders.values() if order.watches and order.machine), None)
        spares = [each.machine for each in self.orders.values() if each.machine and each.watches == watched]
        return watched, spares if watched else []

    @property
    def promised(self) -> list[Promised]:
        """Machines, whatever they were ordered by."""
        one = [
            Promised(order=order.label, machine=order.machine)
            for order in self.orders.values()
            if order.machine is not None and not order.destroyed
        ]
        return [*one, *(Promised(order=each.label, machine=m) for each in self.counted.values() for m in each.machines)]
