"""Container machines by our own launcher: the plan of a box, its launch, and what is left of it.

A box keeps no state on the host beside its control groups and its plan in the run directory, so there is nothing to
forget but the groups.
"""

from collections.abc import Sequence
from pathlib import Path

import anyio

from hawker import guest
from hawker.errors import Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.host.cgroup import Cgroups
from hawker.ids import MachineId
from hawker.runtime.launcher.box import BoxSurroundings, box_plan, group_views
from hawker.runtime.launcher.launch import run_launcher
from hawker.runtime.launcher.seccomp_program import load_libseccomp

_OWN_GROUPS = Path("/proc/self/cgroup")


class BoxLauncher:
    name = "hawker"

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        hierarchies = cgroups.hierarchies
        own = _OWN_GROUPS.read_text() if _OWN_GROUPS.exists() else ""
        self._around = BoxSurroundings(hierarchies, group_views(own, hierarchies))

    def check(self) -> None:
        """Raises `CannotStart`."""
        guest.launcher_path()
        load_libseccomp()

    def plan(self, directory: Path) -> Path:
        """Where the plan of a run directory is. Whether it is there says who launches its machine."""
        return directory / "box.plan"

    def lay_out(self, config: bytes, directory: Path) -> None:
        """Write the plan for a bundle's config.json. Raises `Inexpressible` for a box that only crun can make."""
        self.plan(directory).write_bytes(box_plan(config, self._around))

    async def run(self, machine_id: MachineId, directory: Path, fds: Sequence[int]) -> int:
        """Launch by the plan, with `fds` as 3, 4, ...; the pid of process 1 on the host. Raises `Unavailable` with the
        reason, once what was half made is gone again."""
        try:
            answer = await run_launcher(self.plan(directory), fds)
            if answer.pid is not None and not answer.error:
                return answer.pid
            reason = answer.error or f"the launcher was ended, status {answer.status}"
        except Unavailable as error:
            reason = str(error)
        with anyio.CancelScope(shield=True):
            await in_thread(Pool.HOST, self._cgroups.remove, machine_id)
        raise Unavailable(f"machine {machine_id} cannot be launched: {reason}")
