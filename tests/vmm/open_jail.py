"""A jail for stand-ins of VMMs: keeper and control group are real, the walls are not. What runs there is ours."""

import anyio.to_thread

from hawker.host.cgroup import Cgroups
from hawker.ids import MachineId
from hawker.runtime.crun import Crun
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.vmm import keeper
from hawker.runtime.vmm.contract import JailCell
from hawker.runtime.vmm.crun_jail import CrunJail

_BEGIN = '"$@" & echo $! > "$0"'


class OpenJail(CrunJail):
    """Keeps `Jail`."""

    name = "open"

    def __init__(self, crun: Crun, cgroups: Cgroups) -> None:
        super().__init__(crun, cgroups)
        self._groups = cgroups

    def inside(self, source: object, name: str) -> str:
        return str(source)

    async def launch(self, cell: JailCell, run: RunDir) -> int:
        pid_file = run.path / "vmm.pid"
        argv = ("/bin/sh", "-c", _BEGIN, str(pid_file), *cell.argv)
        pid = await keeper.launch(run, keeper.KeeperLaunch(argv=argv, fds=cell.fds, pid_file=pid_file, uid=cell.uid))
        vmm = keeper.read_record(run).vmm
        assert vmm is not None, "a keeper that answers has written what it started"
        await anyio.to_thread.run_sync(self._groups.gather, cell.machine_id, cell.bounds, [vmm])
        return pid

    async def clear(self, machine_id: MachineId, run: RunDir) -> None:
        await anyio.to_thread.run_sync(self._groups.remove, machine_id)
