"""What differs between drivers whose machines have a pilot. `PilotDriver` has the rest.

A technology runs the pilot under this host's kernel, as a plain process or in a container, or runs a VMM in a jail,
whose guest runs it. What is launched then is the VMM's keeper, a process of this host that ends after the VMM has.
"""

from typing import Protocol

from hawker.ids import MachineId
from hawker.runtime.driver import Exit, Features, LostPart, Memory, Stats
from hawker.runtime.pilot.channel import PilotChannel
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import InstanceLimits, InstanceSpec


class Technology(Protocol):
    """Every call is idempotent and finds its way from the machine's id and whatever is in `run`, half-made or not."""

    name: str
    features: Features
    contained: bool  # the pilot is process 1 of namespaces and a root filesystem of its own
    channel: PilotChannel

    async def check(self) -> None:
        """See `Driver.check`."""

    async def lay_out(self, spec: InstanceSpec, run: RunDir) -> None:
        """Make what `launch` needs and the run directory does not have yet. Refuse what cannot be served."""

    async def launch(self, spec: InstanceSpec, run: RunDir, fds: tuple[int, ...]) -> int:
        """Start the pilot, or keeper and VMM, detached from this daemon, with `fds` (`PilotChannel.files`) as
        descriptors 3, 4, ... Returns the process id on the host of the pilot, or of the keeper. `fds` belong to the
        caller, who closes them. Never called while anyone holds the journal's lock."""

    async def kill(self, machine_id: MachineId, run: RunDir, pid: int | None) -> None:
        """SIGKILL every process of the machine, the one that was launched too (`pid`, where it is known), and return
        when none is left. Nobody there is no error. A suspended machine is so no more: a snapshot is given up."""

    async def clear(self, machine_id: MachineId, run: RunDir) -> None:
        """Remove what `lay_out` and `launch` made outside `run`. Called after `kill`."""

    async def suspend(self, run: RunDir) -> None:
        """Suspend a machine that lives: see `Driver.suspend`. Raises `NotServed` where it cannot, `Unavailable` when it
        does not come to a halt in time, and then lets it go on."""

    async def resume(self, run: RunDir) -> None:
        """Resume it: see `Driver.resume`; no error when nobody is there. From a snapshot: launch with the files of a
        channel that is `resumed`, and remove `RunDir.snapshot` before the guest goes on. What raises `SnapshotLost` is
        killed."""

    def is_suspended(self, run: RunDir) -> bool: ...

    def thaw(self, machine_id: MachineId) -> None:
        """Let processes that are frozen go on, so that they can end, whether there is a run directory or not."""

    async def memory(self, run: RunDir) -> Memory:
        """Raises `NotServed` where there are no limits."""

    async def limit_memory(self, run: RunDir, limits: InstanceLimits) -> None:
        """Enforce the memory and swap of `limits`. Raises `WrongState` when more is in use."""

    async def reclaim_memory(self, run: RunDir, amount_mib: int) -> int: ...

    def complete(self, run: RunDir, recorded: Exit | None, lost: Exit) -> Exit:
        """Called once, after the end and before `clear`: what the pilot recorded, with what it cannot know, such as
        whether the kernel ended it for its memory. When it was ended before it could record anything, `lost` says when
        that was noticed. What else than the workload is to blame, a guest's kernel or a VMM, is the exit's `fault`."""

    def failed_to_boot(self, run: RunDir) -> bool:
        """Whether what was launched has ended although its pilot never took its spec, in a way that another launch
        would end too, as with a kernel that panics: that is an exit, for `complete` to tell. Never for a pilot that is
        itself launched: it can be launched again."""

    def starts_again(self, run: RunDir) -> bool:
        """Whether what was launched has ended because its pilot, which never took its spec, wants another launch: its
        kernel came up in a way that the next may not. Never for a pilot that is itself launched."""

    async def take_up(self, run: RunDir) -> None:
        """Called by `Driver.recover`: finish what a daemon that died left half-done to a machine that runs. Raises
        `Unavailable` when that cannot be done now, which the next call may repeat."""

    def last_words(self, run: RunDir) -> str:
        """The last lines that a kernel of its own wrote to its console; "" without one."""

    def remnants(self) -> list[MachineId]:
        """Machines of which something is left outside of run directories: a container, a control group."""

    def lost(self, run: RunDir) -> frozenset[LostPart]:
        """What a running machine has lost."""

    def mend(self, spec: InstanceSpec, pid: int) -> None:
        """Give it back its control group, with its limits, and with its processes, the first of which is `pid`."""

    def stats(self, run: RunDir, pid: int) -> Stats: ...
