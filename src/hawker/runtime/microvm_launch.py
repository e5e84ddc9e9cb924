"""Planning one virtual machine by an instance's spec, and launching its VMM by the plan: the plan's file, the jail's
cell, the boot, the words of a VMM that refuses, and what its end means for the machine.

`make_plan` decides, and is pure; the plan is kept in the run directory, so that a machine goes on from its snapshot
with exactly the hardware it began with, whatever this version would give a new one.
"""

import re
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import msgspec

from hawker.clock import Clock
from hawker.errors import BadRequest, CannotStart, NotServed, SnapshotLost, Unavailable, WrongState
from hawker.fair.threads import Pool, in_thread
from hawker.host import netns
from hawker.host.cgroup_restore import Bounds
from hawker.host.vfio import described, vfio_nodes
from hawker.host.vmm_user import user_of
from hawker.runtime.driver import Exit
from hawker.runtime.kernel.guest_kernel import BootFiles, GuestKernel
from hawker.runtime.oci_bundle import cgroup_bounds
from hawker.runtime.pilot.messages import IMAGE, JOURNAL, LAYER
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import InstanceLimits, InstanceSpec
from hawker.runtime.vmm.contract import Jail, JailCell, JailGrant, Restored, Vm, VmDrive, Vmm, VmmEnd
from hawker.value_object import ValueObject

_QUIETLY = ("quiet", "panic=-1")
_OURS = re.compile(r"(hawker\.[^=]*|init|rdinit)(=|$)")
_PLAIN = re.compile(r"[!#-&(-~]+")  # printable, without blanks and quotes: one argument, and not two
_COMMAND_LINE_MAX = 2047  # bytes; x86's COMMAND_LINE_SIZE with its NUL
_THREADS = 128  # of a VMM, beside one for each cpu: its requests to disks are threads


class MicroVMFiles(ValueObject, frozen=True):
    """The host's files for one machine. `directory` is the VMM's own."""

    kernel: Path
    initramfs: Path
    ledger: Path
    directory: Path


class StoredGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A `JailGrant` that can be stored."""

    source: str
    """The path on the host."""
    target: str
    """The absolute path in the jail."""
    writable: bool
    """Whether the VMM may write there; otherwise it may only read."""


class MicroVMPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A machine's hardware, and the files of the host behind it."""

    vm: Vm
    shown: tuple[StoredGrant, ...]

    def grants(self) -> tuple[JailGrant, ...]:
        return tuple(JailGrant(Path(each.source), each.target, each.writable) for each in self.shown)


def make_plan(
    spec: InstanceSpec, vmm: Vmm, inside: Callable[[Path, str], str], files: MicroVMFiles, fds: int
) -> MicroVMPlan:
    """The plan of a machine by its spec. `inside` is `Jail.inside`. Raises `BadRequest` and `NotServed` for a spec that
    cannot be run."""
    refuse(spec, vmm)
    assert spec.root_disk is not None, "refused above"
    sources = {
        "kernel": files.kernel,
        "initramfs": files.initramfs,
        "vmm": files.directory,
        JOURNAL: files.ledger,
        IMAGE: Path(spec.root_disk.image),
        LAYER: Path(spec.root_disk.layer),
        **{volume.name: Path(volume.file) for volume in spec.volumes},
    }
    read_only = {IMAGE, *(volume.name for volume in spec.volumes if volume.read_only)}
    shown_at = {name: inside(source, name) for name, source in sources.items()}
    disks = (JOURNAL, IMAGE, LAYER, *(volume.name for volume in spec.volumes))
    vm = Vm(
        machine_id=spec.machine_id,
        cpus=spec.limits.cpus,
        memory_mib=spec.limits.memory_mib,
        max_memory_mib=max_memory_mib(spec),
        kernel=shown_at["kernel"],
        initramfs=shown_at["initramfs"],
        command_line=command_line(spec, vmm, disks),
        drives=tuple(VmDrive(name, shown_at[name], name in read_only, spec.disk_limits) for name in disks),
        directory=shown_at["vmm"],
        link=spec.link,
        gpus=spec.gpus,
        fds=fds,
    )
    writable = {"vmm", *disks} - read_only
    shown = (
        StoredGrant(source=str(source), target=shown_at[name], writable=name in writable)
        for name, source in sources.items()
    )
    return MicroVMPlan(vm=vm, shown=tuple(shown))


def refuse(spec: InstanceSpec, vmm: Vmm) -> None:
    """Raises `BadRequest` for a spec that no microVM can run, `NotServed` for one that this VMM cannot run."""
    if spec.root_disk is None:
        raise BadRequest(f"a {vmm.name} machine needs a root disk")
    if spec.mounts:
        raise NotServed(f"the {vmm.name} driver shows no directory of the host to its machines: use volumes")
    if spec.gpus and not vmm.gpus:
        raise NotServed(f"the {vmm.name} driver cannot give devices of the host to its machines")
    if spec.limits.swap_mib:
        raise NotServed(f"the {vmm.name} driver gives no swap to its machines: their kernels have memory of their own")
    names = [JOURNAL, IMAGE, LAYER, "kernel", "initramfs", "vmm", *(volume.name for volume in spec.volumes)]
    for name in names:
        if names.count(name) > 1:
            raise BadRequest(f"two disks of machine {spec.machine_id} are called {name}")
    for argument in spec.kernel_args:
        _refuse_argument(argument)


def _refuse_argument(argument: str) -> None:
    if _OURS.match(argument):
        raise BadRequest(f"kernel_args: {argument.partition('=')[0]} is the platform's own: leave it out")
    if not _PLAIN.fullmatch(argument):
        raise BadRequest(f"kernel_args: {argument!r} is not one word: no blanks, quotes or control characters")


def max_memory_mib(spec: InstanceSpec) -> int:
    return max(spec.limits.memory_mib, spec.max_memory_mib or 0)


def command_line(spec: InstanceSpec, vmm: Vmm, disks: tuple[str, ...]) -> str:
    """The kernel's command line. The kernel takes the last of two arguments that contradict each other: a user's come
    after ours. Raises `BadRequest` for a line that is too long."""
    timer = () if vmm.timer_khz is None else (f"hawker.timer={vmm.timer_khz}",)
    ours = (vmm.console(), *_QUIETLY, f"hawker.disks={','.join(disks)}", f"hawker.end={vmm.power_off}", *timer)
    line = " ".join((*ours, *spec.kernel_args))
    if len(line) > _COMMAND_LINE_MAX:
        raise BadRequest(f"kernel_args make a command line of {len(line)} bytes; a kernel takes {_COMMAND_LINE_MAX}")
    return line


def devices(spec: InstanceSpec, vmm: Vmm) -> tuple[str, ...]:
    """The devices of the host that the VMM opens itself."""
    return tuple(_devices(spec, vmm))


def _devices(spec: InstanceSpec, vmm: Vmm) -> Iterator[str]:
    if vmm.accelerates:
        yield "/dev/kvm"
    if spec.link is not None:
        yield "/dev/net/tun"


def bounds(limits: InstanceLimits, overhead_mib: int) -> Bounds:
    """The bounds of VMM and guest together: a guest's memory is its VMM's, and the VMM's own need, `overhead_mib`,
    comes on top."""
    with_vmm = msgspec.structs.replace(
        limits, memory_mib=limits.memory_mib + overhead_mib, swap_mib=0, pids=_THREADS + limits.cpus
    )
    return cgroup_bounds(with_vmm)


BROKEN = 125
"""The exit code of a machine that its platform, or its own kernel, could not run; as the pilot has it."""

_PANIC = re.compile(r"Kernel panic - not syncing: ([^\n]*)")
_AGAIN = re.compile(r"^hawker: start again: ", re.MULTILINE)
_STAMP = re.compile(r"^\[ *\d+\.\d+\] ", re.MULTILINE)
_LINES = 3
_WORDS_MAX = 400


# What the end of a VMM means for its machine, and what its kernel said last. Pure. The console is the guest's to
# write, so its words are cut and made harmless before anyone reads them.


class VmmEvidence(ValueObject, frozen=True):
    """The evidence that is left of a VMM that has ended. `end` is None when its keeper was ended before it could say;
    `oom_kills` is of its control group."""

    end: VmmEnd | None
    oom_kills: int


def judge(evidence: VmmEvidence, recorded: Exit | None, killed: Exit) -> Exit:
    """The exit of a machine. `recorded` is the pilot's own word; an exit that it recorded happened, whatever became of
    the VMM then. `killed` is the exit of a machine that was ended without a word."""
    if recorded is not None:
        return recorded
    end = evidence.end
    at = end.at if end is not None else killed.exited_at
    if evidence.oom_kills > 0:
        fault = "the VMM needed more memory than it may have beside its guest's: raise vmm_overhead_mib"
        return msgspec.structs.replace(killed, exited_at=at, oom_killed=True, fault=fault)
    if end is None:
        return msgspec.structs.replace(killed, fault="the VMM and its keeper were ended from outside")
    if end.status < 0:
        code = -end.status
        return Exit(exit_code=128 + code, signal=code, exited_at=at, fault=f"the VMM was ended by {_name_of(code)}")
    return Exit(exit_code=BROKEN, exited_at=at, fault=_fault(end))


def is_final(evidence: VmmEvidence) -> bool:
    """Whether a machine whose pilot never took its spec was ended by its guest, or for its size. A VMM that fails says
    why to its launcher, and may be launched again, as one whose guest asks for that."""
    if evidence.end is None or starts_again(evidence):
        return False
    return evidence.end.status == 0 or evidence.oom_kills > 0


def starts_again(evidence: VmmEvidence) -> bool:
    """Whether the pilot turned its guest off, before it took its spec, to have it started again."""
    end = evidence.end
    return end is not None and end.status == 0 and bool(_AGAIN.search(_text(end.console)))


def _fault(end: VmmEnd) -> str:
    text = _text(end.console)
    panics = _PANIC.findall(text)
    if panics:
        return f"kernel panic: {panics[-1].strip()[:_WORDS_MAX]}"
    if end.status > 0:
        return f"the VMM ended with status {end.status}: {last_words(end.console)}"
    return f"the guest turned itself off without a word; its kernel's last words: {last_words(end.console)}"


def last_words(console: bytes) -> str:
    """The last lines of the console that have any text, cut and made harmless; "(none)" without one."""
    lines = [line.strip() for line in _text(console).splitlines() if line.strip()]
    return " / ".join(lines[-_LINES:])[-_WORDS_MAX:] or "(none)"


def _text(console: bytes) -> str:
    """Without time stamps and whatever a terminal would obey."""
    text = console.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return _STAMP.sub("", "".join(char if char == "\n" or char.isprintable() else " " for char in text))


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_LOOK_EVERY_S = 0.02
_LAST_WORDS_S = 2.0  # for a VMM to end that has hung up


class MicroVMLauncher:
    """Plans and launches the VMMs of machines. Remembers nothing. `overhead_mib` is how many MiB a VMM may need beside
    its guest's memory."""

    def __init__(self, vmm: Vmm, jail: Jail, kernel: GuestKernel, clock: Clock, overhead_mib: int) -> None:
        self._vmm = vmm
        self._jail = jail
        self._kernel = kernel
        self._clock = clock
        self._overhead_mib = overhead_mib

    async def plan(self, spec: InstanceSpec, run: RunDir, fds: int) -> MicroVMPlan:
        """The plan of a machine. Raises `BadRequest`, `NotServed`, `WrongState` and, without a kernel,
        `Unavailable`."""
        try:
            found = await in_thread(Pool.HOST, self._kernel.lend, self._vmm.kernel_format, run.path)
        except (CannotStart, OSError) as error:
            raise Unavailable(f"machine {spec.machine_id} has no kernel to boot: {error}") from error
        made = make_plan(spec, self._vmm, self._jail.inside, _files(found, run), fds)
        _refuse_incomplete(spec)
        return made

    async def launch(self, spec: InstanceSpec, run: RunDir, fds: tuple[int, ...]) -> int:
        """Boot the machine for the first time, from the kernel on. Returns the keeper's pid."""
        plan = await self.plan(spec, run, len(fds))
        await in_thread(Pool.HOST, write_plan, run, plan)
        return await self.run(spec, run, plan, fds)

    async def run(
        self, spec: InstanceSpec, run: RunDir, plan: MicroVMPlan, fds: tuple[int, ...], restored: Restored | None = None
    ) -> int:
        """Run the VMM of a plan, `restored` from a snapshot or booted. Returns the keeper's pid. Nothing of it is left
        when this raises: `Unavailable`, or `SnapshotLost`, with the VMM's own words."""
        cell = JailCell(
            machine_id=spec.machine_id,
            uid=user_of(spec.machine_id),
            argv=self._vmm.argv(plan.vm, restored),
            grants=(*plan.grants(), *map(_about, spec.gpus)),
            devices=(*devices(spec, self._vmm), *vfio_nodes(spec.gpus)),
            netns=spec.netns,
            bounds=bounds(spec.limits, self._overhead_mib),
            fds=fds,
        )
        await in_thread(Pool.HOST, _clear_sockets, run)
        try:
            pid = await self._jail.launch(cell, run)
            await self._boot(plan, run, restored)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._jail.kill(spec.machine_id, run, None)
                await self._jail.clear(spec.machine_id, run)
            raise
        return pid

    async def _boot(self, plan: MicroVMPlan, run: RunDir, restored: Restored | None) -> None:
        """The lock on the journal is ours too as yet: only the keeper can say that the VMM has ended."""
        failure: Unavailable | SnapshotLost | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_at_the_end, run, tasks.cancel_scope)
            try:
                await self._vmm.boot(plan.vm, run, restored)
                tasks.cancel_scope.cancel()
                return
            except (Unavailable, SnapshotLost) as error:
                failure = error
                tasks.cancel_scope.deadline = anyio.current_time() + _LAST_WORDS_S
        raise self._refusal(run, restored, failure) from failure

    def _refusal(
        self, run: RunDir, restored: Restored | None, failure: Unavailable | SnapshotLost | None
    ) -> Unavailable | SnapshotLost:
        """A VMM that was killed says nothing about its snapshot."""
        end = self._jail.ended(run)
        said = str(failure) if failure is not None else f"{self._vmm.name} ended"
        text = said if end is None else f"{said}: {last_words(end.console)}"
        killed = end is not None and end.status < 0
        torn = restored is not None and not killed and (failure is None or isinstance(failure, SnapshotLost))
        return SnapshotLost(text) if torn else Unavailable(f"machine {run.machine_id} cannot be run: {text}")

    async def _cancel_at_the_end(self, run: RunDir, scope: anyio.CancelScope) -> None:
        while self._jail.ended(run) is None:
            await self._clock.sleep(_LOOK_EVERY_S)
        scope.cancel()


def plan_path(run: RunDir) -> Path:
    return run.path / "plan"


def write_plan(run: RunDir, plan: MicroVMPlan) -> None:
    draft = plan_path(run).with_suffix(".new")
    draft.write_bytes(msgspec.json.encode(plan))
    draft.replace(plan_path(run))


def read_plan(run: RunDir) -> MicroVMPlan:
    """The plan of a machine that was launched. Raises `WrongState` when it cannot be read."""
    try:
        return msgspec.json.decode(plan_path(run).read_bytes(), type=MicroVMPlan)
    except (OSError, msgspec.DecodeError) as error:
        raise WrongState(f"the plan of machine {run.machine_id} cannot be read: restart it") from error


def _clear_sockets(run: RunDir) -> None:
    """An earlier VMM's: some cannot listen where there is one."""
    for path in run.vmm.iterdir():
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()


def _files(found: BootFiles, run: RunDir) -> MicroVMFiles:
    return MicroVMFiles(kernel=found.kernel, initramfs=found.initramfs, ledger=run.journal, directory=run.vmm)


def _refuse_incomplete(spec: InstanceSpec) -> None:
    """What a jail would refuse with less clear words."""
    assert spec.root_disk is not None, "planned without one"
    for file in (spec.root_disk.image, spec.root_disk.layer, *(volume.file for volume in spec.volumes)):
        if not Path(file).is_file():
            raise WrongState(f"a disk of machine {spec.machine_id} is not there: {file}")
    if spec.link is not None and spec.netns is None:
        raise BadRequest(f"machine {spec.machine_id} has a link, and no network to be in")
    if spec.netns is not None and not netns.exists(Path(spec.netns)):
        raise WrongState(f"the network of machine {spec.machine_id} is not there: {spec.netns}")


def _about(address: str) -> JailGrant:
    """What the host says about a device, at the path that its VMM is told."""
    path = described(address)
    return JailGrant(path.resolve(), str(path))
