"""The container driver: a machine is a container, made by our launcher or by crun, whose process 1 is the pilot.

Here is what these and the kernel add to `PilotDriver`: the bundle, limits, the memory limit's verdict, and every end by
control group, so that no process escapes it. Root filesystem and network are given in the spec and belong to others;
here are only made the places for what is mounted in the root filesystems of a machine's own containers.
"""

import hashlib
import os
import resource
import shutil
import signal
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
import msgspec
from msgspec.structs import replace

from hawker import guest
from hawker.clock import Clock
from hawker.config.rules import PLATFORM_PATHS
from hawker.errors import BadRequest, CannotStart, NotServed, Unavailable, WrongState
from hawker.fair.threads import Pool, in_thread
from hawker.host import cgroup, cgroup_memory, netns
from hawker.host.apparmor import AppArmor
from hawker.host.cgroup import CgroupLayout, Cgroups, find_hierarchies
from hawker.host.facts import lack_of_swap
from hawker.host.idmap import RANGE, acting_as
from hawker.host.mapping_trial import lack_of_mapping
from hawker.host.mount import mounts
from hawker.ids import InstanceId, MachineId, NodeId
from hawker.log import bind
from hawker.runtime import proc
from hawker.runtime.crun import Crun, CrunBundle, make_stage, staged, staged_config
from hawker.runtime.driver import Exit, Features, LostPart, Memory, Stats, Suspension
from hawker.runtime.launcher.box import Inexpressible
from hawker.runtime.launcher.launch import BoxLauncher
from hawker.runtime.launcher.launcher_choice import LauncherChoice
from hawker.runtime.launcher.launcher_trial import LauncherTrial, TrialMachine
from hawker.runtime.oci_bundle import OPEN_FILES, PILOT_PATH, ContainerPlacement, cgroup_bounds, oci_config
from hawker.runtime.pilot.channel import PILOT_OPTIONS, PilotChannel, UnixSocketChannel
from hawker.runtime.pilot.driver import PilotDriver
from hawker.runtime.pilot.process_exit import end
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import InstanceLimits, InstanceSpec, MountSpec, ProcessSpec

_log = bind("hawker.container")
Userns: TypeAlias = Literal["auto", "on", "off"]

_KERNELS_OWN = ("proc", "dev", "sys")
_PLATFORMS_OWN = tuple(path.removeprefix("/") for path in PLATFORM_PATHS)
_LINKS_MAX = 40  # as the kernel has it
_PATH_MAX = 4096  # bytes, as the kernel has it for a path; here with all links that it leads over
SUSPEND_TIMEOUT_S = 10.0  # for the last of a machine's processes to come to a halt
_UNUSED = (0, 0, 0o755)  # owner, group and permissions of a new volume
_HALTED_EVERY_S = 0.005
_PASSES = 3
_MIB = 1 << 20
_PILOT = "pilot"  # in the run directory
_OOM_SCORE = Path("/proc/self/oom_score_adj")  # a host may keep us from giving less than we have ourselves
_INOTIFY = Path("/proc/sys/fs/inotify")
_INOTIFY_OF_ALL = {"max_user_instances": 1 << 24, "max_user_watches": 1 << 28}
_CGROUP_NAMESPACE = Path("/proc/self/ns/cgroup")
_TRIAL_S = 20  # then what a trial started ends, also when nobody is left to end it
_ENVIRONMENT = ("HOME=/root",)  # the pilot's; crun would look for it in the machine's files


def container_driver(
    node_id: NodeId,
    machines: Path,
    crun_state: Path,
    clock: Clock,
    *,
    suspends: bool = True,
    userns: Userns = "auto",
    launcher: LauncherChoice = LauncherChoice.CRUN,
) -> PilotDriver:
    """The driver for containers on this node. `crun_state` is a directory of this node's own; `suspends`: machines may
    be frozen; `userns`: the setting."""
    cgroups = Cgroups(node_id, find_hierarchies(mounts()))
    lack = "it is switched off" if userns == "off" else lack_of_mapping(machines.parent)
    technology = ContainerTechnology(
        Crun(crun_state, cgroups),
        cgroups,
        clock,
        suspends=suspends,
        needs_ids=userns == "on",
        lack_of_ids=lack,
        launcher=launcher,
        apparmor=AppArmor(node_id),
    )
    return PilotDriver(technology, machines, clock, trash=machines.parent / "trash")


class ContainerTechnology:
    """Runs machines as containers, by our launcher and crun. Keeps `Technology`. Remembers nothing."""

    name = "container"
    contained = True

    def __init__(
        self,
        crun: Crun,
        cgroups: Cgroups,
        clock: Clock,
        *,
        suspends: bool = True,
        needs_ids: bool = False,
        lack_of_ids: str = "",
        launcher: LauncherChoice = LauncherChoice.CRUN,
        apparmor: AppArmor | None = None,
    ) -> None:
        self._crun = crun
        self._apparmor = apparmor
        self._profile = ""
        self._needs_ids = needs_ids
        self._boxes = BoxLauncher(cgroups)
        self._launcher = launcher
        self._cgroups = cgroups
        self._clock = clock
        self.channel: PilotChannel = UnixSocketChannel()
        freezes = suspends and cgroups.has("freezer")
        self.features = Features(
            rootfs=True,
            network=True,
            limits=True,
            mounts=True,
            containers=True,
            suspend=Suspension.FREEZE if freezes else None,
            lacks_swap=lack_of_swap(cgroups),
            driver=self.name,
            user_namespace=not lack_of_ids,
            lacks_user_namespace=lack_of_ids,
        )

    async def check(self) -> None:
        if os.geteuid() != 0:
            raise CannotStart("the container driver needs root: start as root, or choose --driver process")
        if self._launcher is LauncherChoice.HAWKER:
            self._boxes.check()
        else:
            self._crun.find_program()
        if shutil.which("nft") is None:
            raise CannotStart("nft is missing: apt-get install nftables")
        if self._cgroups.layout is CgroupLayout.NONE:
            raise CannotStart("no cgroups are mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup")
        guest.pilot_path()
        guest.launcher_path()
        if self._needs_ids and not self.features.user_namespace:
            lack = self.features.lacks_user_namespace
            raise CannotStart(f"--userns on: machines cannot have ids of their own here: {lack}; or use --userns auto")
        if self._apparmor is not None:
            self._profile = await in_thread(Pool.HOST, self._apparmor.load)
        make_stage()
        _raise_open_files()
        if self.features.user_namespace:
            _raise_inotify()

    async def lay_out(self, spec: InstanceSpec, run: RunDir) -> None:
        """In a thread: how long it takes is up to whoever made the image."""
        await in_thread(Pool.HOST, self._lay_out, spec, run)

    def _lay_out(self, spec: InstanceSpec, run: RunDir) -> None:
        _refuse_incomplete(spec)
        with acting_as(spec.first_id):
            processes = tuple(lay_root(spec.machine_id, process) for process in spec.processes)
        root = Path(spec.rootfs or "/")
        mounts = lay_mounts(root, spec.mounts)
        for mount in mounts:
            hand_over(root, mount, spec.first_id or 0)
        laid = msgspec.structs.replace(spec, processes=processes, mounts=mounts)
        placement = replace(_placement(self._cgroups, spec.machine_id, _own_pilot(run)), profile=self._profile)
        if self._launcher is LauncherChoice.HAWKER:
            try:
                return self._boxes.lay_out(oci_config(laid, placement), run.path)
            except Inexpressible as error:
                _log.warning("crun launches this machine", extra={"machine": spec.machine_id, "reason": str(error)})
        CrunBundle(run.path).config.write_bytes(staged_config(laid, placement)[0])

    async def launch(self, spec: InstanceSpec, run: RunDir, fds: tuple[int, ...]) -> int:
        if self._crun.knows(spec.machine_id) or self._cgroups.knows(spec.machine_id):
            await in_thread(Pool.HOST, self._crun.forget, spec.machine_id)
        if self._boxes.plan(run.path).exists():
            return await self._boxes.run(spec.machine_id, run.path, fds)
        stage = None if spec.first_id is None else staged(spec, run.path / _PILOT)[2].prepare
        return await self._crun.run(spec.machine_id, CrunBundle(run.path), fds, stage)

    async def kill(self, machine_id: MachineId, run: RunDir, pid: int | None) -> None:
        """End all processes of the machine. All are in its control group, the pilot too, unless the group was taken
        away from them: then the pilot's end is the end of its namespace."""
        if self._cgroups.knows(machine_id):
            await in_thread(Pool.HOST, self._cgroups.kill, machine_id)
        if pid is not None:
            await end(pid, run.alive)

    async def clear(self, machine_id: MachineId, run: RunDir) -> None:
        """Remove the machine's control groups and crun's state of it, also where its groups were lost: the node's own
        group, above them, goes with the last machine."""
        plan = self._boxes.plan(run.path)
        if plan.exists() or self._crun.knows(machine_id) or self._cgroups.knows(machine_id):
            await in_thread(Pool.HOST, self._crun.forget, machine_id)
            plan.unlink(missing_ok=True)  # the next call finds nothing to do

    async def suspend(self, run: RunDir) -> None:
        if self.features.suspend is None:
            raise NotServed("suspending is switched off on this node, or its kernel has no freezer")
        try:
            with anyio.fail_after(SUSPEND_TIMEOUT_S):
                while not cgroup.freeze(self._cgroups.group("freezer", run.machine_id)):
                    await self._clock.sleep(_HALTED_EVERY_S)
        except TimeoutError as error:
            self.thaw(run.machine_id)
            text = f"machine {run.machine_id} did not come to a halt in {SUSPEND_TIMEOUT_S:g} s, and goes on"
            raise Unavailable(text) from error
        except BaseException:
            self.thaw(run.machine_id)
            raise

    async def resume(self, run: RunDir) -> None:
        self.thaw(run.machine_id)

    def is_suspended(self, run: RunDir) -> bool:
        return self._cgroups.has("freezer") and cgroup.is_frozen(self._cgroups.group("freezer", run.machine_id))

    def thaw(self, machine_id: MachineId) -> None:
        """Let frozen processes go on, also where suspending is switched off: a machine may have been frozen before
        that."""
        if self._cgroups.has("freezer"):
            cgroup.thaw(self._cgroups.group("freezer", machine_id))

    async def memory(self, run: RunDir) -> Memory:
        use = cgroup_memory.read_use(self._cgroups.group("memory", run.machine_id))
        return Memory(limit_mib=use.limit // _MIB, available_mib=use.available // _MIB)

    async def limit_memory(self, run: RunDir, limits: InstanceLimits) -> None:
        group = self._cgroups.group("memory", run.machine_id)
        await in_thread(Pool.HOST, cgroup_memory.set_limit, group, limits.memory_mib * _MIB, limits.swap_mib * _MIB)

    async def reclaim_memory(self, run: RunDir, amount_mib: int) -> int:
        group = self._cgroups.group("memory", run.machine_id)
        return await in_thread(Pool.HOST, cgroup_memory.reclaim, group, amount_mib * _MIB) // _MIB

    def complete(self, run: RunDir, recorded: Exit | None, lost: Exit) -> Exit:
        """The exit, with the memory limit to blame when it killed any process and the end was not a clean or an
        asked-for one."""
        exit = recorded or lost
        failed = exit.exit_code != 0 and exit.signal in (0, signal.SIGKILL)
        if not failed or self._cgroups.oom_kills(run.machine_id) == 0:
            return exit
        return msgspec.structs.replace(exit, oom_killed=True)

    def failed_to_boot(self, run: RunDir) -> bool:
        return False

    def starts_again(self, run: RunDir) -> bool:
        return False

    async def take_up(self, run: RunDir) -> None:
        """Does nothing: nothing is left half-done, since a machine is frozen or not."""

    def last_words(self, run: RunDir) -> str:
        return ""

    def lost(self, run: RunDir) -> frozenset[LostPart]:
        """The parts that a running machine has lost. A machine of our own launcher has no state beside its control
        group."""
        known = self._boxes.plan(run.path).exists() or self._crun.knows(run.machine_id)
        found = [] if known else [LostPart.RUNTIME_STATE]
        if self._cgroups.is_lost(run.machine_id):
            found.append(LostPart.CGROUP)
        return frozenset(found)

    def mend(self, spec: InstanceSpec, pid: int) -> None:
        """Gather all processes in the control group again. A process that is forked meanwhile is found by the next
        pass: from the first pass on, children are born inside the group."""
        for _ in range(_PASSES):
            pids = [pid, *(entry.pid for entry in proc.descendants(pid))]
            self._cgroups.gather(spec.machine_id, cgroup_bounds(spec.limits), pids)

    def stats(self, run: RunDir, pid: int) -> Stats:
        spec = run.spec()
        assert spec is not None, "a running machine has a spec"
        return msgspec.convert(self._cgroups.usage(spec.machine_id), Stats, from_attributes=True)

    def remnants(self) -> list[MachineId]:
        return self._crun.list()


def _placement(cgroups: Cgroups, machine_id: MachineId, pilot: Path) -> ContainerPlacement:
    return ContainerPlacement(
        pilot=pilot,
        arguments=PILOT_OPTIONS,
        environment=_ENVIRONMENT,
        cgroup=cgroups.path_of(machine_id),
        cgroup_namespace=_CGROUP_NAMESPACE.exists(),
        oom_score=max(0, int(_OOM_SCORE.read_text())),
        open_files=min(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
    )


def launcher_trial(place: Path, boot_id: str, clock: Clock, first_id: int | None) -> LauncherTrial:
    """The trial of our launcher on this host, in a node's directory `place`: with a machine that has everything that a
    machine may have, and a program that only waits. `first_id` as of a machine's spec."""
    node_id = NodeId(hashlib.sha256(os.fsencode(place)).hexdigest()[:8])
    cgroups = Cgroups(node_id, find_hierarchies(mounts()))

    def machine(machine_id: MachineId, directory: Path) -> TrialMachine:
        spec = InstanceSpec(
            machine_id=machine_id,
            instance_id=InstanceId("trial"),
            hostname="trial",
            processes=(ProcessSpec(argv=(), env={}, name="inner", root=str(directory / "inner")),),
            limits=InstanceLimits(cpus=1, cpu_weight=100, memory_mib=64, pids=32),
            rootfs=str(directory / "root"),
            mounts=(MountSpec(source=str(directory / "volume"), target="/volume", read_only=True),),
            first_id=first_id,
        )
        placement = _placement(cgroups, machine_id, guest.pilot_path())
        config, stage = staged_config(spec, placement)
        return TrialMachine(_waiting(oci_config(spec, placement)), _waiting(config), stage)

    return LauncherTrial(cgroups, machine, first_id, node_id, boot_id, clock)


def _waiting(config: bytes) -> bytes:
    """With a program that only waits in the pilot's place."""
    found = msgspec.json.decode(config, type=dict[str, Any])
    found["process"]["args"] = ["/bin/hello", "sleep", str(_TRIAL_S)]
    return msgspec.json.encode(found)


def _own_pilot(run: RunDir) -> Path:
    """A copy of the pilot for this instance alone: whoever wrote to its pages would reach no other machine by that."""
    own = run.path / _PILOT
    shutil.copyfile(guest.pilot_path(), own)
    own.chmod(0o555)
    return own


def _refuse_incomplete(spec: InstanceSpec) -> None:
    """What crun would refuse with less clear words."""
    if spec.rootfs is None:
        raise BadRequest("a container machine needs a root filesystem")
    if not Path(spec.rootfs).is_dir():
        raise WrongState(f"the root filesystem of machine {spec.machine_id} is not mounted: {spec.rootfs}")
    owner = Path(spec.rootfs).stat().st_uid
    if spec.first_id is not None and not spec.first_id <= owner < spec.first_id + RANGE:
        text = f"the root filesystem of machine {spec.machine_id} is not mounted with the machine's ids: start it again"
        raise WrongState(text)
    if spec.netns is not None and not netns.exists(Path(spec.netns)):
        raise WrongState(f"the network of machine {spec.machine_id} is not there: {spec.netns}")


def _raise_open_files() -> None:
    """crun cannot give more than it was given, and a shell's limit is often lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, max(hard, OPEN_FILES)))


def lay_root(machine_id: MachineId, process: ProcessSpec) -> ProcessSpec:
    """Make the container's root ready for its mounts. Returns the process with the true targets of its mounts. Raises
    `WrongState` when the root is not mounted."""
    if process.root is None:
        return process
    root = Path(process.root)
    if not root.is_dir():
        raise WrongState(
            f"the root filesystem of container {process.name} of machine {machine_id} is not mounted: {root}"
        )
    for name in _KERNELS_OWN:
        if (root / name).is_symlink():
            (root / name).unlink()
        (root / name).mkdir(exist_ok=True)
    mounts = tuple(
        msgspec.structs.replace(each, target=_place(root, each.target, _KERNELS_OWN)) for each in process.mounts
    )
    return msgspec.structs.replace(process, mounts=mounts)


def lay_mounts(root: Path, mounts: tuple[MountSpec, ...]) -> tuple[MountSpec, ...]:
    """The mounts of a machine with their true targets. Raises `BadRequest` for a mount that a link in the image leads
    over a path of the platform's, and for a link in the place of such a path, whose way a mount could cover: the pilot
    is executed by its path when all is mounted."""
    for own in (*PLATFORM_PATHS, PILOT_PATH) if mounts else ():
        if (found := resolve(root, own)) != own:
            text = f"the image has a link to {found} in the place of the platform's {own}"
            raise BadRequest(f"nothing can be mounted on {mounts[0].target}: {text}")
    return tuple(msgspec.structs.replace(each, target=_place(root, each.target, _PLATFORMS_OWN)) for each in mounts)


def hand_over(root: Path, mount: MountSpec, first_id: int) -> None:
    """Give a volume that nobody has used yet the owner and the permissions of the image's directory in its place: a
    process with a user of its own could not write there otherwise. `first_id` is the host's id of the machine's root.
    No machine of the volume or the image may run."""
    try:
        volume = os.stat(mount.source)
        if not mount.mapped or (volume.st_uid, volume.st_gid, stat.S_IMODE(volume.st_mode)) != _UNUSED:
            return
        with os.scandir(mount.source) as entries:
            if any(entry.name != "lost+found" for entry in entries):  # it may have millions
                return
        place = os.lstat(root.joinpath(resolve(root, mount.target)[1:]))
    except (OSError, BadRequest):  # no such directory in the image; or none that can be mounted, which the launch says
        return
    owner, group = place.st_uid - first_id, place.st_gid - first_id
    if stat.S_ISDIR(place.st_mode) and owner >= 0 and group >= 0:
        os.chown(mount.source, owner, group)
        os.chmod(mount.source, stat.S_IMODE(place.st_mode) & 0o777)


def _place(root: Path, target: str, taken: tuple[str, ...]) -> str:
    """`taken` are names in the root."""
    found = resolve(root, target)
    if found.split("/")[1] in ("", *taken):
        raise BadRequest(f"nothing can be mounted on {target}, which is {found} inside: that is the platform's")
    return found


def resolve(root: Path, path: str) -> str:
    """The path to which an absolute path leads for a process that has `root` as its root; a part that is not there is
    taken as it is named. Links are followed within `root`: the process that mounts would follow them from the machine's
    root. Raises `BadRequest` when they lead round in a circle, or make the path longer than a path may be: whoever made
    the image may have a link lead over thousands of parts to the next."""
    top = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _resolve(top, path)
    finally:
        os.close(top)


def _resolve(top: int, path: str) -> str:
    done: list[str] = []
    waiting = path.split("/")[::-1]
    links, written = 0, len(os.fsencode(path))
    while waiting:
        if written >= _PATH_MAX:
            raise BadRequest(f"{path:.80} leads by its links over a path of more than {_PATH_MAX} bytes")
        part = waiting.pop()
        if part == "..":
            del done[-1:]
        if part in ("", ".", ".."):
            continue
        try:
            link = os.readlink("/".join((*done, part)), dir_fd=top)
        except OSError:
            done.append(part)
            continue
        links += 1
        if links > _LINKS_MAX:
            raise BadRequest(f"{path} leads round in a circle of links")
        written += len(os.fsencode(link))
        if link.startswith("/"):
            done.clear()
        waiting += link.split("/")[::-1]
    return "/" + "/".join(done)


def _raise_inotify() -> None:
    """What machines take of inotify counts for root of the host too, who made their user namespaces: one that took all
    would leave none to root and to other machines. The memory that it costs is the machine's own, and bounds it."""
    for name, least in _INOTIFY_OF_ALL.items():
        file = _INOTIFY / name
        try:
            if int(file.read_text()) < least:
                file.write_text(str(least))
        except OSError as error:
            _log.warning("machines share root's inotify", extra={"file": str(file), "error": str(error)})
