"""Running crun: start a container from a bundle, and forget one. Knows nothing of machines' insides.

Our launcher makes the container's control groups and joins them; crun, which it then becomes, leaves them alone: to be
moved there by another process takes most of crun's time, and where v1 and v2 are mounted together, crun would write
plain files below the mount of v2. What crun mounts for a machine with ids of its own is bound below `STAGE`, in crun's
own mount namespace. Forgetting removes state and control groups itself rather than running `crun delete`: it works on
half-made containers and saves an exec.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec
from msgspec.structs import replace

from hawker.errors import CannotStart, Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.host import netns
from hawker.host.cgroup import CgroupLayout, Cgroups
from hawker.host.mount import BIND, NODEV, NOEXEC, NOSUID, mount
from hawker.ids import MachineId
from hawker.runtime.launcher.box import Inexpressible, host_plan
from hawker.runtime.launcher.launch import run_launcher
from hawker.runtime.oci_bundle import ContainerPlacement, oci_config
from hawker.runtime.spec import InstanceSpec, MountSpec, ProcessSpec
from hawker.value_object import ValueObject

STAGE = Path("/run/hawker/stage")
"""An empty directory of the host that everybody may pass."""

SYS = STAGE / "sys"
_OPEN = "mode=711,size=64k"


def make_stage(stage: Path = STAGE) -> None:
    """Make the stage. Every user may pass it and its parent, whatever the daemon's umask. Raises `OSError`."""
    for directory in (stage.parent, stage):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o711)


class CrunStage(ValueObject, frozen=True):
    """The mounts for one launch: `binds` has each source with its place, `network` the namespace file whose /sys is
    shown."""

    binds: tuple[tuple[Path, Path], ...]
    network: Path | None

    def prepare(self) -> None:
        """Mount the stage, in a mount namespace of the caller's own. Descriptors are opened first: the stage may hide a
        source."""
        opened = [os.open(source, os.O_PATH | os.O_CLOEXEC) for source, _ in self.binds]
        try:
            mount("tmpfs", STAGE, "tmpfs", NOSUID | NODEV, _OPEN)
            for fd, (source, place) in zip(opened, self.binds, strict=True):
                place.mkdir() if source.is_dir() else place.touch()
                mount(f"/proc/self/fd/{fd}", place, "", BIND)
        finally:
            for fd in opened:
                os.close(fd)
        SYS.mkdir()
        self._mount_sys()

    def _mount_sys(self) -> None:
        def view() -> None:
            mount("sysfs", SYS, "sysfs", NOSUID | NODEV | NOEXEC)

        if self.network is None:
            view()
        else:
            netns.visit(self.network, view)


def staged(spec: InstanceSpec, pilot: Path) -> tuple[InstanceSpec, Path, CrunStage]:
    """The spec and the pilot's file by their places on the stage, and the stage."""
    binds: dict[Path, Path] = {}

    def place(source: str | Path) -> str:
        return str(binds.setdefault(Path(source), STAGE / f"{len(binds)}"))

    def mounts(of: tuple[MountSpec, ...]) -> tuple[MountSpec, ...]:
        return tuple(msgspec.structs.replace(each, source=place(each.source)) for each in of)

    def process(of: ProcessSpec) -> ProcessSpec:
        root = None if of.root is None else place(of.root)
        return msgspec.structs.replace(of, root=root, mounts=mounts(of.mounts))

    assert spec.rootfs is not None, "a container has a root filesystem"
    on_stage = msgspec.structs.replace(
        spec,
        rootfs=place(spec.rootfs),
        processes=tuple(map(process, spec.processes)),
        mounts=mounts(spec.mounts),
    )
    program = Path(place(pilot))
    return on_stage, program, CrunStage(tuple(binds.items()), None if spec.netns is None else Path(spec.netns))


def staged_config(spec: InstanceSpec, placement: ContainerPlacement) -> tuple[bytes, Callable[[], None] | None]:
    """The config.json of an instance as crun can carry it out, and the function that mounts the stage; None where it
    needs no stage."""
    if spec.first_id is None:
        return oci_config(spec, placement), None
    on_stage, pilot, stage = staged(spec, placement.pilot)
    return oci_config(on_stage, replace(placement, pilot=pilot, sys=SYS)), stage.prepare


UNIFIED = Path("/sys/fs/cgroup/unified")


class _LogLine(msgspec.Struct, frozen=True, kw_only=True):
    msg: str = ""


class CrunBundle(ValueObject, frozen=True):
    """The files of one container: its config.json, how crun is to be started, and the log and pid that crun writes
    beside it."""

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
    """Runs one node's containers. `root` is crun's state directory, `cgroups` are the node's control groups."""

    name = "crun"

    def __init__(self, root: Path, cgroups: Cgroups) -> None:
        self._root = root
        self.cgroups = cgroups
        self.hidden = UNIFIED if cgroups.layout is CgroupLayout.HYBRID else None  # crun 1.8 refuses a hybrid layout

    def find_program(self) -> str:
        """The path of crun. Raises `CannotStart` when it is not installed."""
        found = shutil.which("crun")
        if found is None:
            raise CannotStart("crun is missing: apt-get install crun")
        return found

    async def run(
        self, machine_id: MachineId, bundle: CrunBundle, fds: Sequence[int], stage: Callable[[], None] | None = None
    ) -> int:
        """Start the container, detached, with `fds` as 3, 4, ... Returns the pid of its process 1 on the host. `stage`
        mounts files for crun alone (`spawn`). Not idempotent: call `forget` first. Raises `Unavailable` with the
        reason, once the half-made container is gone again."""
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
        """The command that starts a container, detached, with `fds` descriptors from 3 on. It must not see the mount at
        `hidden`. `joined`: it is in the container's control groups when it is executed. Raises `CannotStart`."""
        argv = [self.find_program(), "--root", str(self._root), "--log", str(bundle.log), "--log-format", "json"]
        argv += ["--cgroup-manager", "disabled"] if joined else []
        argv += ["run", "--detach", "--preserve-fds", str(fds), "--pid-file", str(bundle.pid)]
        return [*argv, "--bundle", str(bundle.directory), machine_id]

    def forget(self, machine_id: MachineId) -> None:
        """End every process of the container and remove its control groups and crun's state of it. No error when there
        is nothing."""
        self.cgroups.remove(machine_id)
        if self.knows(machine_id):
            shutil.rmtree(self._root / machine_id, ignore_errors=True)

    def knows(self, machine_id: MachineId) -> bool:
        """Whether crun keeps state of the container, also of a start that was cut short."""
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
