"""Which part of a host's machines one of its edge processes has. Pure.

Each process serves clients of every app. The gates of an app's machines are in one of them, and the others lead to
them as to machines of another host, by a hop.
"""

from pathlib import Path

import msgspec

from hawker.feed import GatePlace, MachineRoute, process_of
from hawker.host.own_user import WRITES
from hawker.ids import AppName, NodeId
from hawker.value_object import ValueObject


class EdgeShard(ValueObject, frozen=True):
    """The edge process `number` of `processes` processes of a host, 1 to 8; 0 is the first. `folder` is the edge's."""

    number: int = 0
    processes: int = 1
    folder: Path = Path()

    def has(self, app: AppName) -> bool:
        """Whether the gates of the app's machines on this host are in this process."""
        return process_of(app, self.processes) == self.number

    def seen(self, machine: MachineRoute) -> MachineRoute:
        """The machine as this process has it: its gate is here, in another process of the host, or on another host."""
        if machine.gate is not None or self.has(machine.app):
            return machine
        return msgspec.structs.replace(machine, gate=self._at(process_of(machine.app, self.processes)))

    def own_gate(self, gate: GatePlace | None) -> GatePlace | None:
        """The place at which this process answers other hosts, if the first process does so at `gate`."""
        return gate if gate is None else msgspec.structs.replace(gate, port=gate.port + self.number)

    @property
    def others(self) -> list[Path]:
        """The sockets at which the other processes of the host answer this one."""
        return [Path(self._at(each).host) for each in range(self.processes) if each != self.number]

    @property
    def socket(self) -> Path | None:
        """The socket at which this process answers the others of the host; None where there are none."""
        return None if self.processes == 1 else Path(self._at(self.number).host)

    def _at(self, number: int) -> GatePlace:
        """In a folder that nobody else enters."""
        return GatePlace(node=NodeId(""), host=str(self.folder / WRITES / f"{number}.hops"), port=0)
