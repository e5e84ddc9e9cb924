"""Running crun: start a container from a bundle, and forget one. Knows nothing of machines' insides.

Forgetting removes crun's state directory and the control groups itself rather than running `crun delete`: that is all
there is to remove, it works on half-made containers, and it saves an exec on the path of every restart.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from hawker.errors import CannotStart, Unavailable
from hawker.failpoint import inside
from hawker.host.cgroup import CgroupLayout, Cgroups
from hawker.host.spawn import reap, spawn
from hawker.ids import MachineId

_UNIFIED = Path("/sys/fs/cgroup/unified")
_RUN_TIMEOUT_S = 30.0


class _LogLine(msgspec.Struct, frozen=True, kw_only=True):
    msg: str = ""


@dataclass(frozen=True, slots=True)
class CrunBundle:
    """The files of one container: its config.json, and what crun writes beside it."""

    directory: Path

    @property
    def config(self) -> Path:
        return self.directory / "config.json"

    @property
    def log(self) -> Path:
        return self.directory / "crun.log"

    @property
    def pid(self) -> Path:
        return self.directory / "crun.pid"


class Crun:
    """One node's containers. `root` is crun's state directory, `cgroups` the node's control groups."""

    def __init__(self, root: Path, cgroups: Cgroups) -> None:
        self._root = root
        self._cgroups = cgroups
        self.hidden = _UNIFIED if cgroups.layout is CgroupLayout.HYBRID else None  # crun 1.8 refuses a hybrid layout

    def find_program(self) -> str:
        """Raises `CannotStart`."""
        found = shutil.which("crun")
        if found is None:
            raise CannotStart("crun is missing: apt-get install crun")
        return found

    async def run(self, machine_id: MachineId, bundle: CrunBundle, fds: Sequence[int]) -> int:
        """Start the container, detached, with `fds` as 3, 4, ...; the pid of its process 1 on the host. Not idempotent:
        call `forget` first. Raises `Unavailable` with crun's reason, once what crun half made is gone again."""
        argv = self.run_argv(machine_id, bundle, len(fds))
        with anyio.CancelScope(shield=True):
            pid = await anyio.to_thread.run_sync(lambda: spawn(argv, fds=fds, hidden=self.hidden))
            inside("creating")
            with anyio.fail_after(_RUN_TIMEOUT_S):
                status = await reap(pid)
        if status != 0:
            await anyio.to_thread.run_sync(self.forget, machine_id)
            raise Unavailable(f"crun cannot start machine {machine_id}: {last_words(bundle.log) or f'status {status}'}")
        return int(bundle.pid.read_text())

    def run_argv(self, machine_id: MachineId, bundle: CrunBundle, fds: int) -> list[str]:
        """The command that starts a container, detached, with so many descriptors from 3 on. It is not to see what is
        mounted at `hidden`. Raises `CannotStart`."""
        argv = [self.find_program(), "--root", str(self._root), "--log", str(bundle.log), "--log-format", "json", "run"]
        argv += ["--detach", "--preserve-fds", str(fds), "--pid-file", str(bundle.pid)]
        return [*argv, "--bundle", str(bundle.directory), machine_id]

    def forget(self, machine_id: MachineId) -> None:
        """End every process of the container and remove what crun keeps of it. No error when there is nothing."""
        self._cgroups.remove(machine_id)
        shutil.rmtree(self._root / machine_id, ignore_errors=True)

    def knows(self, machine_id: MachineId) -> bool:
        """Whether crun keeps anything of it, be it of a start that was cut short."""
        return (self._root / machine_id).exists()

    def list(self) -> list[MachineId]:
        """Containers that crun knows or whose control groups are left."""
        known = os.listdir(self._root) if self._root.is_dir() else []
        return sorted({*map(MachineId, known), *self._cgroups.list()})


def last_words(log: Path) -> str:
    """The last line that crun logged; empty when there is none."""
    try:
        lines = log.read_bytes().splitlines()
        return msgspec.json.decode(lines[-1], type=_LogLine).msg
    except (OSError, IndexError, msgspec.DecodeError):
        return ""
