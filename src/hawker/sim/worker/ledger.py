"""What the clients of a run know together: which order became which machine, what they were told, what was found."""

from collections.abc import Callable

from hawker.clock import Clock
from hawker.ids import MachineId, SnapshotId, VolumeId
from hawker.proof import invariants
from hawker.proof.promises import Promises
from hawker.proof.snapshots import SnapshotPromises
from hawker.proof.volume_checks import VolumePromises
from hawker.sim.harness.ledger import RunLedger
from hawker.sim.harness.trace import Trace
from hawker.store.contract import Reader


class WorkerLedger(RunLedger):
    """Which order became which machine, and what is promised of it."""

    def __init__(self, clock: Clock, trace: Trace, alarm: Callable[[], None]) -> None:
        super().__init__(clock, trace, alarm)
        self.promises = Promises()
        self.volume_promises = VolumePromises()
        self.volumes: dict[str, VolumeId] = {}  # by label
        self.snapshot_promises = SnapshotPromises()
        self.snapshots: dict[str, SnapshotId] = {}  # the last of a volume, by its label
        self.machines: dict[str, MachineId] = {}  # by label
        self.nonces: dict[tuple[str, str], str] = {}  # of leases, by client and label
        self.touched: set[MachineId] = set()

    def check(self, reader: Reader) -> None:
        """At any moment between two transactions; what was not touched since the last time is as it was."""
        if self.touched and not self.found:
            self.find(invariants.of_store(reader, self.touched))
            self.touched.clear()
