"""Suspending a machine into a snapshot, and going on from it, so that a death of the daemon at any point leaves it
either running or suspended, never both, never lost.

The record of a snapshot is the truth. It is made once the memory is on the disk, and removed before the guest goes on;
a VMM that still runs while it is there is a leftover, and ended. A guest that is held still without one, because a
daemon died in between, is let go by the next: what tells of it is a directory of a snapshot without a record.
"""

import os
import re
import signal
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import msgspec
from msgspec.structs import replace

from hawker.clock import Clock
from hawker.errors import BadRequest, NotServed, SnapshotLost, Unavailable, WrongState
from hawker.failpoint import inside
from hawker.fair.threads import Pool, in_thread
from hawker.host.vmm_user import user_of
from hawker.log import bind
from hawker.runtime.driver import Exit
from hawker.runtime.microvm_launch import MicroVMLauncher, MicroVMPlan, read_plan, write_plan
from hawker.runtime.microvm_memory import MicroVMMemory
from hawker.runtime.pilot import requests
from hawker.runtime.pilot.channel import PilotChannel
from hawker.runtime.pilot.link import ANSWER_TIMEOUT_S
from hawker.runtime.pilot.messages import IMAGE, JOURNAL, LAYER
from hawker.runtime.pilot.rundir import RunDir, spec_of
from hawker.runtime.spec import InstanceSpec
from hawker.runtime.vmm.contract import Jail, Restored, Vm, Vmm

SAVED = "snapshot"
"""The name of a snapshot's directory, below the VMM's."""

_SAMPLE = 64 << 10


# The host's record of a machine's snapshot, `RunDir.snapshot`: what it is of, and enough to see that it is still
# whole. The memory itself is in the VMM's own directory, in `SAVED`; the record is not, so no VMM can make its
# machine look suspended. Of each file of the snapshot its size and a checksum of its beginning and end are checked,
# which finds what was cut, emptied, exchanged or belongs to another snapshot, at once and whatever its size. A
# change in the midst of a file is not found; whoever could make one, with the rights of root or of the VMM's user,
# owns the machine's memory anyway.


class SavedFile(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """The file's name in the directory of the snapshot, without slashes."""
    size: int
    """The file's size in bytes."""
    checksum: int  # CRC-32 of its first and its last 64 KiB


class MicroVMSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a machine's snapshot. `program` is the VMM that wrote it, by name and version; `plan` the machine's
    hardware, to which it belongs; `available_mib` how many MiB of its memory the guest could still use."""

    program: str
    plan: MicroVMPlan
    files: tuple[SavedFile, ...]
    available_mib: int


def saved_directory(run: RunDir) -> Path:
    return run.vmm / SAVED


def make_room(run: RunDir, uid: int) -> None:
    """Make an empty directory for a snapshot, for the VMM to write to; an earlier one is removed with its files."""
    drop_files(run)
    saved_directory(run).mkdir(mode=0o700)
    os.chown(saved_directory(run), uid, uid, follow_symlinks=False)


def saved_files(run: RunDir) -> tuple[SavedFile, ...]:
    """The record of every file that a VMM has saved; each file is made durable. Raises `SnapshotLost`."""
    with _opened(run) as place:
        names = sorted(os.listdir(place))
        found = tuple(_look(place, name, flush=True) for name in names)
        os.fsync(place)
    return found


def publish_snapshot(run: RunDir, snapshot: MicroVMSnapshot) -> None:
    """Write the record: from here on the machine is suspended, also after a crash of the host."""
    draft = run.snapshot.with_name(run.snapshot.name + ".new")
    with draft.open("wb") as file:
        file.write(msgspec.json.encode(snapshot))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(run.snapshot)
    _flush(run.path)


def read_snapshot(run: RunDir) -> MicroVMSnapshot:
    """The record of the machine's snapshot. Raises `SnapshotLost` when it cannot be read."""
    try:
        return msgspec.json.decode(run.snapshot.read_bytes(), type=MicroVMSnapshot)
    except (OSError, msgspec.DecodeError) as error:
        raise SnapshotLost("the record of the machine's snapshot cannot be read") from error


def refuse_unusable(run: RunDir, snapshot: MicroVMSnapshot, program: str) -> None:
    """Raises `SnapshotLost` with what has changed since the snapshot was made."""
    if snapshot.program != program:
        raise SnapshotLost(f"the machine's snapshot was made by {snapshot.program}, and this is {program}")
    for shown in snapshot.plan.shown:
        if not Path(shown.source).exists():
            raise SnapshotLost(f"{shown.source} is gone, with which the machine's snapshot was made")
    with _opened(run) as place:
        for file in snapshot.files:
            if _look(place, file.name, flush=False) != file:
                raise SnapshotLost(f"the machine's snapshot is torn: {file.name} is not as it was written")


def forget_snapshot(run: RunDir) -> None:
    """Remove the record: from here on the machine is not suspended, also after a crash of the host."""
    run.snapshot.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        _flush(run.path)


def drop_files(run: RunDir) -> None:
    """Remove the memory files of a snapshot that is not published; also of half a snapshot. A VMM that still runs may
    put what it likes there meanwhile, nested as deep as it likes: what is no file is moved out of its directory, and
    goes with the run directory once the VMM has ended."""
    place = saved_directory(run)
    if place.is_symlink() or place.is_file():
        place.unlink()
        return
    with suppress(SnapshotLost), _opened(run) as fd:
        for name in os.listdir(fd):
            with suppress(OSError):
                os.unlink(name, dir_fd=fd)
        with suppress(OSError):
            place.rmdir()
            return
        with suppress(OSError):
            place.rename(run.path / f"dropped-{os.fstat(fd).st_ino}")  # which nothing else has while it is there


# A snapshot goes to another node as files of the run directory: without record and spec they are nothing. What
# names places of the host comes under another name, and is written anew: the machine has its hardware, and the disks
# and the network of the new node behind it.

_INSTANCE, _PLAN, _RECORD, _CAME = "instance", "plan", "snapshot", ".came"
_BOOTED_FROM = ("journal", "kernel", "initramfs")
_SAVED_NAME = re.compile(rf"vmm/{SAVED}/[a-z0-9][a-z0-9._-]*")


def came_as(name: str) -> str:
    return f"{name}{_CAME}" if name in (_INSTANCE, _PLAN, _RECORD) else name


def moved_place(run: RunDir, name: str) -> Path:
    """The path of a file of a suspended machine, by its name. Raises `BadRequest` for any other name."""
    known = name.removesuffix(_CAME) in (_INSTANCE, _PLAN, _RECORD) or name in _BOOTED_FROM
    if not known and not _SAVED_NAME.fullmatch(name):
        raise BadRequest(f"{name!r:.80} is no file of a suspended machine")
    return run.path / name


def moved_files(run: RunDir) -> dict[str, int]:
    """The size in bytes of each file of a suspended machine, by its name. Raises `SnapshotLost` when one is not
    there."""
    saved = tuple(f"vmm/{SAVED}/{file.name}" for file in read_snapshot(run).files)
    names = (*_BOOTED_FROM, *saved, _INSTANCE, _PLAN, _RECORD)
    try:
        return {name: moved_place(run, name).stat().st_size for name in names}
    except OSError as error:
        raise SnapshotLost(f"the machine's snapshot is torn: {error.filename}: {error.strerror}") from error


def make_moved_place(run: RunDir) -> None:
    for directory in (run.path, run.vmm, saved_directory(run)):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def take_in(run: RunDir, here: InstanceSpec) -> None:
    """Make the moved machine suspended here. To be called again after a crash. At any moment others see no instance, or
    a suspended one: the record is there before the spec, without which it says nothing. Raises `SnapshotLost`."""
    if run.saved() and run.spec() is not None:
        return
    try:
        spec = msgspec.json.decode(moved_place(run, came_as(_INSTANCE)).read_bytes(), type=InstanceSpec)
        snapshot = msgspec.json.decode(moved_place(run, came_as(_RECORD)).read_bytes(), type=MicroVMSnapshot)
    except (OSError, msgspec.DecodeError) as error:
        raise SnapshotLost(f"what came of the machine's snapshot cannot be read: {error}") from error
    if spec.machine_id != here.machine_id or spec.instance_id != here.instance_id:
        raise SnapshotLost("what came is the snapshot of another instance")
    plan = _moved_plan(run, snapshot.plan, here)
    place, uid = saved_directory(run), user_of(here.machine_id)
    for path in (place, *place.iterdir()):
        os.chown(path, uid, uid, follow_symlinks=False)
    write_plan(run, plan)
    moved = replace(snapshot, plan=plan)
    refuse_unusable(run, moved, moved.program)
    publish_snapshot(run, moved)
    run.write_spec(replace(spec, netns=here.netns, root_disk=here.root_disk, volumes=here.volumes))
    _flush(run.path)
    for name in (_INSTANCE, _PLAN, _RECORD):
        moved_place(run, came_as(name)).unlink(missing_ok=True)


def _moved_plan(run: RunDir, plan: MicroVMPlan, here: InstanceSpec) -> MicroVMPlan:
    """The same hardware, over the files of this node. Raises `SnapshotLost`."""
    vm = plan.vm
    if here.root_disk is None or {each.name for each in vm.drives} != {
        *_OWN_DISKS,
        *(each.name for each in here.volumes),
    }:
        raise SnapshotLost("the machine's snapshot has other disks than the machine")
    files = {JOURNAL: run.journal, IMAGE: here.root_disk.image, LAYER: here.root_disk.layer}
    files |= {volume.name: volume.file for volume in here.volumes}
    places = {drive.path: str(files[drive.name]) for drive in vm.drives}
    places |= {vm.kernel: str(run.path / "kernel"), vm.initramfs: str(run.path / "initramfs")}
    places |= {vm.directory: str(run.vmm)}
    if any(each.target not in places for each in plan.shown):
        raise SnapshotLost("the machine's snapshot was made with files of its host that do not move")
    return replace(plan, shown=tuple(replace(each, source=places[each.target]) for each in plan.shown))


_OWN_DISKS = (JOURNAL, IMAGE, LAYER)


def _look(place: int, name: str, *, flush: bool) -> SavedFile:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
    except OSError as error:
        raise SnapshotLost(f"the machine's snapshot is torn: {name}: {error.strerror}") from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise SnapshotLost(f"the machine's snapshot was tampered with: {name} is not a file")
        if flush:
            os.fsync(fd)
        sample = os.pread(fd, _SAMPLE, 0) + os.pread(fd, _SAMPLE, max(0, found.st_size - _SAMPLE))
        return SavedFile(name=name, size=found.st_size, checksum=zlib.crc32(sample))
    finally:
        os.close(fd)


@contextmanager
def _opened(run: RunDir) -> Iterator[int]:
    try:
        place = os.open(saved_directory(run), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise SnapshotLost(f"the machine's snapshot is gone: {error.strerror}") from error
    try:
        yield place
    finally:
        os.close(place)


def _flush(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


_log = bind("hawker.microvm")
_LEAVES_S = 5.0  # for a VMM to end itself
_MIB = 1 << 20


class SnapshotSuspension:
    """Suspends machines into snapshots and resumes them. Remembers nothing."""

    def __init__(
        self,
        vmm: Vmm,
        jail: Jail,
        channel: PilotChannel,
        launcher: MicroVMLauncher,
        memory: MicroVMMemory,
        clock: Clock,
    ) -> None:
        self._vmm = vmm
        self._jail = jail
        self._channel = channel
        self._launcher = launcher
        self._memory = memory
        self._clock = clock

    async def suspend(self, run: RunDir) -> None:
        if not self._vmm.snapshots:
            raise NotServed(f"the {self._vmm.name} driver cannot suspend")
        if not run.saved():
            await self._save(run)
            inside("published")
        await self._leave(run)

    async def resume(self, run: RunDir) -> None:
        if not run.saved():
            await self.let_go(run)
            return
        await self._leave(run)
        try:
            await self._restore(run)
        except SnapshotLost as lost:
            run.write_exit(_lost(str(lost), self._clock.now()))  # before anybody who waits for its end can judge it
            with anyio.CancelScope(shield=True):
                await self.give_up(run)
            raise
        inside("forgotten")
        await self._go_on(run)

    async def let_go(self, run: RunDir) -> None:
        """Let a guest go on that was held still, and whose daemon died before it was suspended or after it was
        resumed."""
        if run.alive() and not run.saved() and saved_directory(run).exists():
            await self._go_on(run)

    async def give_up(self, run: RunDir) -> None:
        """End the processes that run, then the snapshot: the other way round the machine would run, as nobody knows
        what."""
        await self._jail.kill(run.machine_id, run, None)
        forget_snapshot(run)
        await in_thread(Pool.HOST, drop_files, run)

    async def _save(self, run: RunDir) -> None:
        plan, program = read_plan(run), await self._vmm.version()
        available_mib = await self._available_mib(run)
        await in_thread(Pool.HOST, make_room, run, user_of(run.machine_id))
        try:
            await self._vmm.save(plan.vm, run, _inside(plan.vm))
            inside("saved")
            files = await in_thread(Pool.HOST, saved_files, run)
            snapshot = MicroVMSnapshot(program=program, plan=plan, files=files, available_mib=available_mib)
            await in_thread(Pool.HOST, publish_snapshot, run, snapshot)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                forget_snapshot(run)
                await self._go_on(run)
            if isinstance(error, (SnapshotLost, OSError)):
                text = f"the memory of machine {run.machine_id} could not be kept, and it goes on: {error}"
                raise Unavailable(text) from error
            raise

    async def _leave(self, run: RunDir) -> None:
        """No process of a suspended machine is left, and no control group."""
        if run.alive():
            with anyio.move_on_after(_LEAVES_S):
                await self._vmm.end(run)
        await self._jail.kill(run.machine_id, run, None)
        await self._jail.clear(run.machine_id, run)

    async def _restore(self, run: RunDir) -> None:
        """Until the guest could go on. Whatever raises but `SnapshotLost` leaves it suspended."""
        spec, snapshot = spec_of(run), read_snapshot(run)
        program = await self._vmm.version()
        await in_thread(Pool.HOST, refuse_unusable, run, snapshot, program)
        vm = snapshot.plan.vm
        with self._channel.files(run, spec, resumed=True) as fds:
            if len(fds) != vm.fds:
                raise SnapshotLost("the machine's snapshot was made by a version of hawker with other devices")
            restored = Restored(directory=_inside(vm), program=snapshot.program)
            pid = await self._launcher.run(spec, run, snapshot.plan, fds, restored)
            inside("restored")
            run.write_pid(pid)
        await in_thread(Pool.HOST, forget_snapshot, run)

    async def _go_on(self, run: RunDir) -> None:
        """The pilot's answer and the clock come right after the guest's first moment. One that does not take the time
        has the wrong one, and goes on."""
        await self._vmm.proceed(run)
        try:
            with anyio.fail_after(ANSWER_TIMEOUT_S):
                async with self._channel.connect(run, kept=True) as pilot:
                    await pilot.hello()
                    await requests.set_clock(pilot, self._clock.now())
        except (TimeoutError, Unavailable, WrongState) as error:
            _log.warning("clock not set", extra={"machine_id": run.machine_id, "reason": str(error)})
        await in_thread(Pool.HOST, drop_files, run)

    async def _available_mib(self, run: RunDir) -> int:
        """A guest that does not say can be suspended all the same."""
        try:
            return min(spec_of(run).limits.memory_mib, (await self._memory.ask(run)).available // _MIB)
        except Unavailable:
            return 0


def _lost(why: str, at: float) -> Exit:
    return Exit(exit_code=128 + signal.SIGKILL, signal=signal.SIGKILL, exited_at=at, fault=why)


def refuse_suspended(run: RunDir) -> None:
    """Raises `WrongState` for a machine in a snapshot."""
    if run.saved():
        raise WrongState(f"machine {run.machine_id} is suspended")


def _inside(vm: Vm) -> str:
    return f"{vm.directory}/{SAVED}"
