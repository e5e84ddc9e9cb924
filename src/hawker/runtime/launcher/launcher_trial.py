"""Whether our launcher makes the very box that crun makes on this host: it is tried, once per boot of the host,
launcher and crun. Each starts a machine from the same bundle; both boxes are observed, and compared.

`observe` reads everything of a running process 1 that isolates it, as the kernel describes it from outside;
`differences` says in sentences where two such readings are not alike. Numbers that are new in every box, such as those
of mounts and processes, are left out.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec

from hawker import guest
from hawker.clock import Clock
from hawker.errors import CannotStart, HawkerError
from hawker.host.cgroup import Cgroups, Hierarchies
from hawker.ids import MachineId
from hawker.runtime.crun import Crun, CrunBundle
from hawker.runtime.launcher.box import Inexpressible
from hawker.runtime.launcher.launch import BoxLauncher
from hawker.value_object import ValueObject

Observation = Mapping[str, tuple[str, ...]]
"""Lines by what they are about."""

_STATUS = (
    "Umask Uid Gid Groups SigQ SigPnd ShdPnd SigBlk SigIgn CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp"
    " Seccomp_filters Speculation_Store_Bypass SpeculationIndirectBranch Threads THP_enabled Cpus_allowed_list"
    " Mems_allowed_list CoreDumping"
).split()
_VARIABLE = frozenset({"SigQ"})  # counts what waits for any process of the user
_LIMIT_FILES = (
    "cpu.shares",
    "cpu.cfs_period_us",
    "cpu.cfs_quota_us",
    "cpu.max",
    "cpu.weight",
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "memory.max",
    "memory.swap.max",
    "pids.max",
    "devices.list",
    "cpuset.cpus",
    "cpuset.mems",
    "freezer.state",
    "cgroup.type",
)
_TEXTS = "oom_score_adj uid_map gid_map setgroups loginuid personality timerslack_ns coredump_filter".split()
_ANONYMOUS = re.compile(r"^0:\d+$")


def observe(pid: int, hierarchies: Hierarchies, group: str) -> Observation:
    """What isolates a process; `group` is its control group in each tree. Raises `OSError` when it has ended."""
    process = Path(f"/proc/{pid}")
    found = {
        "status": tuple(_status((process / "status").read_text())),
        "mounts": tuple(sorted(_mounts((process / "mountinfo").read_text()))),
        "namespaces": tuple(_namespaces(process)),
        "limits": tuple((process / "limits").read_text().splitlines()),
        "environment": tuple((process / "environ").read_text().split("\0")),
        "descriptors": tuple(_descriptors(process)),
        "control groups": tuple(_lines(process / "cgroup")),
        "limits of the control groups": tuple(_limit_files(hierarchies, group)),
        "devices": tuple(_devices(process)),
    }
    return found | {name: tuple(_lines(process / name)) for name in _TEXTS if (process / name).exists()}


def differences(ours: Observation, theirs: Observation) -> list[str]:
    """None when they are alike."""
    found = []
    for about in sorted({*ours, *theirs}):
        mine, others = ours.get(about, ()), theirs.get(about, ())
        if mine != others:
            only = [f"only ours has {line!r}" for line in mine if line not in others]
            lacks = [f"ours lacks {line!r}" for line in others if line not in mine]
            found += [f"{about}: {each}" for each in (*only, *lacks)] or [f"{about}: another order or number"]
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError as error:
        return [f"cannot be read: {error.strerror}"]


def _status(text: str) -> Iterator[str]:
    for line in text.splitlines():
        name = line.partition(":")[0]
        if name in _STATUS and name not in _VARIABLE:
            yield line
        elif name == "NSpid":
            yield f"{name}: {len(line.split()) - 1} numbers, the last {line.split()[-1]}"
        elif name == "NSsid":
            yield f"{name}: {line.split()[-1]}"


def _mounts(text: str) -> Iterator[str]:
    """By where it is and what it is mounted on. The source of a control group's mount is a name without effect."""
    fields = [line.split(" ") for line in text.splitlines()]
    places = {each[0]: each[4] for each in fields}
    for each in fields:
        dash = each.index("-")
        kind, source = each[dash + 1], each[dash + 2]
        device = "anonymous" if _ANONYMOUS.match(each[2]) else each[2]
        shown = "" if kind == "cgroup" else source
        yield " ".join(
            [each[4], "on", places.get(each[1], "nothing"), each[3], device, *each[5:dash], kind, shown, each[dash + 3]]
        )


def _namespaces(process: Path) -> Iterator[str]:
    """Which of them are this daemon's."""
    for name in sorted(os.listdir("/proc/self/ns")):
        same = os.readlink(process / "ns" / name) == os.readlink(f"/proc/self/ns/{name}")
        yield f"{name} {'shared with the host' if same else 'its own'}"


def _descriptors(process: Path) -> Iterator[str]:
    """Numbers, and what kind of file each is; of a device also where that is. Not the standard streams: crun's are an
    empty file, as it would give a device of the host to the machine, and ours are the machine's own /dev/null."""
    for number in sorted(set(os.listdir(process / "fd")) - {"0", "1", "2"}, key=int):
        target = os.readlink(process / "fd" / number)
        about = os.stat(process / "fd" / number)
        flags = (process / "fdinfo" / number).read_text().splitlines()[1]
        kind = target if target.startswith("/dev/") else target.partition(":")[0].rpartition("/")[0] and "file"
        yield f"{number} {kind} {about.st_mode:o} {about.st_rdev} {flags}"


def _devices(process: Path) -> Iterator[str]:
    """What is in its /dev, and who owns it."""
    root = process / "root/dev"
    for name in sorted(os.listdir(root)):
        about = (root / name).lstat()
        link = os.readlink(root / name) if (root / name).is_symlink() else ""
        yield f"{name} {about.st_mode:o} {about.st_uid}:{about.st_gid} {about.st_rdev} {link}"


def _limit_files(hierarchies: Hierarchies, group: str) -> Iterator[str]:
    for tree in hierarchies.trees():
        for name in _LIMIT_FILES:
            file = Path(f"{tree}{group}/{name}")
            if file.exists():
                yield f"{tree.name}/{name}: {' '.join(sorted(file.read_text().splitlines()))}"


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
    """JSON, as machines have it."""
    theirs: bytes
    """JSON for crun."""
    stage: Callable[[], None] | None


class LauncherTrial(ValueObject, frozen=True):
    """`machine` gives a machine in a directory, with its root in `root`, whose files belong to `first_id` of the host.
    In `place` is what is remembered, and meanwhile the trial's files, below `name`."""

    cgroups: Cgroups
    machine: Callable[[MachineId, Path], TrialMachine]
    first_id: int | None
    name: str
    boot_id: str
    """Of the host's kernel: a verdict counts until the host boots."""
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
        found = differences(ours, theirs)
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
        found = observe(pid, self.cgroups.hierarchies, self.cgroups.path_of(machine_id))
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
