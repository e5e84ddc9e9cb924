"""What the clients of a run know together: which order became which machine, what they were told, what was found."""

from collections.abc import Callable, Iterable

from hawker.clock import Clock
from hawker.ids import MachineId, SnapshotId, VolumeId
from hawker.proof import invariants
from hawker.proof.promises import Promises
from hawker.proof.snapshots import SnapshotPromises
from hawker.proof.violation import Violation
from hawker.proof.volumes import VolumePromises
from hawker.sim.harness.trace import Speaker, Trace
from hawker.store.contract import Reader


class WorkerLedger:
    """`alarm` is called when something was found."""

    def __init__(self, clock: Clock, trace: Trace, alarm: Callable[[], None]) -> None:
        self._alarm = alarm
        self._clock = clock
        self._trace = trace
        self.promises = Promises()
        self.volume_promises = VolumePromises()
        self.volumes: dict[str, VolumeId] = {}  # by label
        self.snapshot_promises = SnapshotPromises()
        self.snapshots: dict[str, SnapshotId] = {}  # the last of a volume, by its label
        self.machines: dict[str, MachineId] = {}  # by label
        self.nonces: dict[tuple[str, str], str] = {}  # of leases, by client and label
        self.found: list[Violation] = []
        self.operations = 0
        self.touched: set[MachineId] = set()

    def say(self, kind: Speaker, text: str) -> None:
        self._trace.add(self._clock.monotonic(), kind, text)

    def find(self, violations: Iterable[Violation]) -> None:
        for violation in violations:
            if violation not in self.found:
                self.found.append(violation)
                self.say(Speaker.FOUND, str(violation))
        if self.found:
            self._alarm()

    def check(self, reader: Reader) -> None:
        """At any moment between two transactions; what was not touched since the last time is as it was."""
        if self.touched and not self.found:
            self.find(invariants.of_store(reader, self.touched))
            self.touched.clear()
