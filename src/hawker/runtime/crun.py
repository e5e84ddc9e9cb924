"""Running crun: start a container from a bundle, and forget one. Knows nothing of machines' insides.

Our launcher makes the container's control groups with their limits and joins them; crun, which it then becomes, is told
to leave control groups alone. To be moved into a group by another process takes a lock that waits for a grace period of
the kernel on a host at rest, two thirds of what crun takes; and where version 1 and 2 are mounted together, crun would
write plain files below the mount of version 2.

Forgetting removes crun's state directory and the control groups itself rather than running `crun delete`: that is all
there is to remove, it works on half-made containers, and it saves an exec on the path of every restart.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec

from hawker.errors import CannotStart, Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.host.cgroup import CgroupLayout, Cgroups
from hawker.ids import MachineId
from hawker.runtime.launcher.box import Inexpressible, host_plan
from hawker.runtime.launcher.launch import run_launcher
from hawker.value_object import ValueObject

UNIFIED = Path("/sys/fs/cgroup/unified")


class _LogLine(msgspec.Struct, frozen=True, kw_only=True):
    msg: str = ""


class CrunBundle(ValueObject, frozen=True):
    """The files of one container: its config.json, how crun is to be started, and what crun writes beside it."""

    directory: Path

    @property
    def config(self) -> Path:
        return self.directory / "config.json"

    @property
    def plan(self) -> Path:
        return self.directory / "crun.plan"

    @property
    def log(self) -> Path:
        return self.directory / "crun.log"

    @property
    def pid(self) -> Path:
        return self.directory / "crun.pid"


class Crun:
    """One node's containers. `root` is crun's state directory, `cgroups` the node's control groups."""

    name = "crun"

    def __init__(self, root: Path, cgroups: Cgroups) -> None:
        self._root = root
        self.cgroups = cgroups
        self.hidden = UNIFIED if cgroups.layout is CgroupLayout.HYBRID else None  # crun 1.8 refuses a hybrid layout

    def find_program(self) -> str:
        """Raises `CannotStart`."""
        found = shutil.which("crun")
        if found is None:
            raise CannotStart("crun is missing: apt-get install crun")
        return found

    async def run(
        self, machine_id: MachineId, bundle: CrunBundle, fds: Sequence[int], stage: Callable[[], None] | None = None
    ) -> int:
        """Start the container, detached, with `fds` as 3, 4, ...; the pid of its process 1 on the host. `stage` mounts
        what only crun is to see (`spawn`). Not idempotent: call `forget` first. Raises `Unavailable` with the reason,
        once what was half made is gone again."""
        argv = self.run_argv(machine_id, bundle, len(fds), joined=True)
        try:
            path = os.environ.get("PATH", os.defpath)
            bundle.plan.write_bytes(host_plan(bundle.config.read_bytes(), self.cgroups.hierarchies, argv, path))
            with _no_streams() as stdio:
                answer = await run_launcher(bundle.plan, fds, hidden=self.hidden, stage=stage, stdio=stdio)
            if not answer.error and answer.status == 0:
                return int(bundle.pid.read_text())
            reason = answer.error or last_words(bundle.log) or f"status {answer.status}"
        except (Inexpressible, Unavailable) as error:
            reason = str(error)
        with anyio.CancelScope(shield=True):
            await in_thread(Pool.HOST, self.forget, machine_id)
        raise Unavailable(f"crun cannot start machine {machine_id}: {reason}")

    def run_argv(self, machine_id: MachineId, bundle: CrunBundle, fds: int, *, joined: bool = False) -> list[str]:
        """The command that starts a container, detached, with so many descriptors from 3 on. It is not to see what is
        mounted at `hidden`. `joined`: it is in the container's control groups when it is executed. Raises
        `CannotStart`."""
        argv = [self.find_program(), "--root", str(self._root), "--log", str(bundle.log), "--log-format", "json"]
        argv += ["--cgroup-manager", "disabled"] if joined else []
        argv += ["run", "--detach", "--preserve-fds", str(fds), "--pid-file", str(bundle.pid)]
        return [*argv, "--bundle", str(bundle.directory), machine_id]

    def forget(self, machine_id: MachineId) -> None:
        """End every process of the container and remove what crun keeps of it. No error when there is nothing."""
        self.cgroups.remove(machine_id)
        if self.knows(machine_id):
            shutil.rmtree(self._root / machine_id, ignore_errors=True)

    def knows(self, machine_id: MachineId) -> bool:
        """Whether crun keeps anything of it, be it of a start that was cut short."""
        return os.path.lexists(f"{self._root}/{machine_id}")

    def list(self) -> list[MachineId]:
        """Containers that crun knows or whose control groups are left."""
        known = os.listdir(self._root) if self._root.is_dir() else []
        return sorted({*map(MachineId, known), *self.cgroups.list()})


@contextmanager
def _no_streams() -> Iterator[int]:
    """An empty file that nobody can write to. crun gives its standard streams to the container's root: that may be no
    device of the host."""
    fd = os.memfd_create("no-streams", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL)
        yield fd
    finally:
        os.close(fd)


def last_words(log: Path) -> str:
    """The last line that crun logged; empty when there is none."""
    try:
        lines = log.read_bytes().splitlines()
        return msgspec.json.decode(lines[-1], type=_LogLine).msg
    except (OSError, IndexError, msgspec.DecodeError):
        return ""
