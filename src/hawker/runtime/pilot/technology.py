"""What differs between drivers whose pilot is a process under this host's kernel. `PilotDriver` has the rest."""

from typing import Protocol

from hawker.ids import MachineId
from hawker.runtime.driver import Exit, Features, InstanceSpec, Part, Stats
from hawker.runtime.pilot.rundir import RunDir


class Technology(Protocol):
    """Every call is idempotent and finds its way from the machine's id and whatever is in `run`, half-made or not."""

    name: str
    features: Features
    contained: bool  # the pilot is process 1 of namespaces and a root filesystem of its own

    async def check(self) -> None:
        """As `Driver.check`."""

    async def lay_out(self, spec: InstanceSpec, run: RunDir) -> None:
        """Make what `launch` needs and the run directory does not have yet. Refuse what cannot be served."""

    async def launch(self, spec: InstanceSpec, run: RunDir, fds: tuple[int, ...]) -> int:
        """Start the pilot with `PILOT_OPTIONS` and `fds` as its descriptors 3 to 6, detached from this daemon. Returns
        its process id on the host. `fds` belong to the caller, who closes them. Never called while a pilot runs."""

    async def kill(self, machine_id: MachineId, run: RunDir, pid: int | None) -> None:
        """SIGKILL every process of the machine, the pilot too (`pid`, where it is known), and return when none is
        left. Nobody there is no error."""

    async def clear(self, machine_id: MachineId, run: RunDir) -> None:
        """Remove what `lay_out` and `launch` made outside `run`. Called after `kill`."""

    def complete(self, run: RunDir, exit: Exit) -> Exit:
        """Add to an exit what the pilot cannot know: whether the kernel ended it for its memory. Called once, after
        the pilot's end and before `clear`."""

    def lost(self, machine_id: MachineId) -> frozenset[Part]:
        """What a running machine has lost."""

    def mend(self, spec: InstanceSpec, pid: int) -> None:
        """Give it back its control group, with its limits, and with its processes, the first of which is `pid`."""

    def stats(self, run: RunDir, pid: int) -> Stats: ...
