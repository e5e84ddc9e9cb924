"""Technologies whose machines have kernels of their own, as far as the shared half of the drivers can see it: plain
processes of this host play pilot, keeper and VMM.
"""

import sys

import msgspec

from hawker.errors import SnapshotLost
from hawker.host.spawn import spawn
from hawker.ids import MachineId
from hawker.runtime.driver import Exit, Features, Suspension
from hawker.runtime.pilot.process_exit import end
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.process import ProcessTechnology
from hawker.runtime.spec import InstanceSpec

FEATURES = Features(
    rootfs=True, network=False, limits=False, kernel=True, suspend=Suspension.SNAPSHOT, driver="guest", mounts=True
)


class Guest(ProcessTechnology):
    """Its pilot is a real one; its snapshot is a word in a file, and what it had of memory is lost with it."""

    name = "guest"
    features = FEATURES

    def __init__(self, *, boots: bool = True, whole: bool = True) -> None:
        super().__init__()
        self._boots = boots
        self._whole = whole

    async def suspend(self, run: RunDir) -> None:
        run.snapshot.touch()
        await super().kill(run.machine_id, run, run.pid())

    async def resume(self, run: RunDir) -> None:
        if not run.saved():
            return
        if not self._whole:
            raise SnapshotLost("the snapshot is torn")
        spec = run.spec()
        assert spec is not None
        with self.channel.files(run, spec) as fds:
            run.write_pid(await self.launch(spec, run, fds))
        run.snapshot.unlink()

    def is_suspended(self, run: RunDir) -> bool:
        return run.saved()

    async def kill(self, machine_id: MachineId, run: RunDir, pid: int | None) -> None:
        await super().kill(machine_id, run, pid)
        run.snapshot.unlink(missing_ok=True)

    def complete(self, run: RunDir, recorded: Exit | None, lost: Exit) -> Exit:
        return recorded or msgspec.structs.replace(lost, fault="kernel panic: no root")

    def failed_to_boot(self, run: RunDir) -> bool:
        return not self._boots

    def last_words(self, run: RunDir) -> str:
        return "Loading"


class Program(Guest):
    """A machine in which a program runs instead of a pilot: Python's, with the listening socket as 3 and the journal,
    which it holds, as 4. `again`: how often it asks to be started again."""

    def __init__(self, text: str, *, boots: bool = True, again: int = 0) -> None:
        super().__init__(boots=boots)
        self._text = text
        self._again = again
        self.launches = 0

    def starts_again(self, run: RunDir) -> bool:
        return self.launches <= self._again

    async def launch(self, spec: InstanceSpec, run: RunDir, fds: tuple[int, ...]) -> int:
        self.launches += 1
        pid = spawn((sys.executable, "-c", self._text), fds=fds, session=True)
        self._children.add(pid)
        return pid

    async def kill(self, machine_id: MachineId, run: RunDir, pid: int | None) -> None:
        if pid is not None:
            await end(pid, run.alive)
        await super().kill(machine_id, run, None)
        self._bury(pid)
