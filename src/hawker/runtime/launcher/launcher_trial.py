"""Whether our launcher makes the very box that crun makes on this host: it is tried, once per boot of the host,
launcher and crun. Each starts a machine from the same bundle; both boxes are observed, and compared.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec

from hawker import guest
from hawker.clock import Clock
from hawker.deferred import deferred
from hawker.errors import CannotStart, HawkerError
from hawker.host.cgroup import Cgroups
from hawker.ids import MachineId
from hawker.runtime.crun import Crun, CrunBundle
from hawker.runtime.launcher.box import Inexpressible
from hawker.runtime.launcher.box_launcher import BoxLauncher
from hawker.value_object import ValueObject

if TYPE_CHECKING:
    from hawker.runtime.launcher import parity
    from hawker.runtime.launcher.parity import Observation
else:
    parity = deferred("hawker.runtime.launcher.parity")

PLACE = Path("/run/hawker")
"""Of this boot, for all nodes of the host: what is there is gone with the next boot."""

_OURS, _THEIRS = MachineId("trial-of-ours"), MachineId("trial-of-crun")
_EXECUTED_S, _LOOK_AGAIN_S = 5.0, 0.001
_MOST_RESULTS = 16
_TOLD_MAX = 3


class LauncherVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """`alike`: our launcher may be used. `reason` is for people: what was seen."""

    alike: bool
    reason: str


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    about: str  # all that the verdict depends on
    verdict: LauncherVerdict


class TrialMachine(ValueObject, frozen=True):
    """One machine's config.json for our launcher and for crun, and what mounts for crun alone where that is needed."""

    ours: bytes
    theirs: bytes
    stage: Callable[[], None] | None


class LauncherTrial(ValueObject, frozen=True):
    """`machine` gives a machine in a directory, with its root in `root`, whose files belong to `first_id` of the host.
    In `place` is what is remembered, and meanwhile the trial's files, below `name`."""

    cgroups: Cgroups
    machine: Callable[[MachineId, Path], TrialMachine]
    first_id: int | None
    name: str
    boot_id: str
    clock: Clock
    place: Path = PLACE

    @property
    def _scratch(self) -> Path:
        return self.place / f"trial-{self.name}"

    @property
    def _results(self) -> Path:
        return self.place / "launcher.json"

    async def run(self) -> LauncherVerdict:
        """Takes 0.1 s when it is not known yet. Raises nothing: what could not be tried now is not trusted, and tried
        again next time."""
        try:
            about = self._about()
            known = self._known()
            if about not in known:
                known[about] = await self._try()
                self._remember(known)
            return known[about]
        except (Inexpressible, HawkerError, OSError) as error:
            return LauncherVerdict(alike=False, reason=f"it could not be tried: {error}")

    async def _try(self) -> LauncherVerdict:
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(parents=True)
        try:
            ours = await self._observe_ours(BoxLauncher(self.cgroups))
            theirs = await self._observe_theirs(Crun(self._scratch / "crun", self.cgroups))
        finally:
            for machine_id in (_OURS, _THEIRS):
                self.cgroups.remove(machine_id)
            shutil.rmtree(self._scratch, ignore_errors=True)
        found = parity.differences(ours, theirs)
        if found:
            return LauncherVerdict(alike=False, reason=f"its box is not crun's: {'; '.join(found[:_TOLD_MAX])}")
        return LauncherVerdict(alike=True, reason="its box is crun's")

    async def _observe_ours(self, launcher: BoxLauncher) -> "Observation":
        launcher.check()
        directory = self._directory(_OURS)
        launcher.lay_out(self.machine(_OURS, directory).ours, directory)
        return await self._observe(_OURS, await launcher.run(_OURS, directory, ()))

    async def _observe_theirs(self, crun: Crun) -> "Observation":
        directory = self._directory(_THEIRS)
        bundle, machine = CrunBundle(directory), self.machine(_THEIRS, directory)
        bundle.config.write_bytes(machine.theirs)
        return await self._observe(_THEIRS, await crun.run(_THEIRS, bundle, (), machine.stage))

    def _directory(self, machine_id: MachineId) -> Path:
        """With a root that holds one program, the root of a container, and a volume."""
        self.cgroups.remove(machine_id)
        directory = self._scratch / machine_id
        fill_trial_directory(directory, self.first_id)
        return directory

    async def _observe(self, machine_id: MachineId, pid: int) -> "Observation":
        """crun returns a moment before its last process becomes the machine's program, which the kernel shows under its
        new name a moment before it shows its environment."""
        process = Path(f"/proc/{pid}")
        with anyio.fail_after(_EXECUTED_S):
            while not (os.readlink(process / "exe").endswith("/bin/hello") and (process / "environ").read_bytes()):
                await self.clock.sleep(_LOOK_AGAIN_S)
        found = parity.observe(pid, self.cgroups.hierarchies, self.cgroups.path_of(machine_id))
        scratch, group = str(self._scratch / machine_id), self.cgroups.path_of(machine_id)
        return {
            about: tuple(line.replace(scratch, "SCRATCH").replace(group, "GROUP") for line in lines)
            for about, lines in found.items()
        }

    def _about(self) -> str:
        crun = shutil.which("crun")
        if crun is None:
            raise CannotStart("crun is missing, which is the judge: apt-get install crun")
        digest = hashlib.sha256(self.machine(_OURS, Path("/")).ours)
        for program in (str(guest.launcher_path()), crun):
            found = os.stat(program)
            digest.update(f"{program} {found.st_ino} {found.st_size} {found.st_mtime_ns}\n".encode())
        return f"{self.boot_id} {digest.hexdigest()}"

    def _known(self) -> dict[str, LauncherVerdict]:
        """A file that cannot be read costs another trial."""
        try:
            results = msgspec.json.decode(self._results.read_bytes(), type=tuple[_Result, ...])
        except (OSError, msgspec.DecodeError):
            return {}
        return {result.about: result.verdict for result in results}

    def _remember(self, known: dict[str, LauncherVerdict]) -> None:
        results = [_Result(about=about, verdict=verdict) for about, verdict in known.items() if self.boot_id in about]
        draft = self._results.with_name(f"{self._results.name}.{os.getpid()}")
        with suppress(OSError):
            draft.write_bytes(msgspec.json.encode(results[-_MOST_RESULTS:]))
            draft.rename(self._results)


def fill_trial_directory(directory: Path, first_id: int | None) -> None:
    """For the machine of a trial: a root that holds one program, the root of a container, and a volume."""
    for name in ("root/bin", "inner/proc", "inner/dev", "inner/sys", "volume"):
        (directory / name).mkdir(parents=True)
    shutil.copy2(guest.hello_path(), directory / "root/bin/hello")
    give_files(directory, first_id)


def give_files(directory: Path, first_id: int | None) -> None:
    """All that is in the directory belongs to a machine whose root is the host's user `first_id`, None: 0."""
    for path in directory.rglob("*"):
        os.chown(path, first_id or 0, first_id or 0, follow_symlinks=False)
