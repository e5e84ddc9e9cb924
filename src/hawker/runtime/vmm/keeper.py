"""The host's companion of each microVM (`guest/keeper.c`): starting it, and what it leaves in the run directory.

It is the parent of the VMM and outlives the daemon. Its files belong to root, and no VMM can reach them.
"""

import os
import signal
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import anyio

from hawker import guest
from hawker.errors import Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.host.spawn import reap, spawn
from hawker.runtime import proc
from hawker.runtime.pilot.process_exit import end, ended
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.vmm.contract import JailGrant, VmmEnd
from hawker.value_object import ValueObject

_LAUNCH_TIMEOUT_S = 30.0
_LAST_WORDS_S = 5.0
_ANSWER_MAX, _REASON_MAX = 8 << 10, 500
_RECORD_BYTES = 512
_RING, _CHUNK = 64 << 10, 8 << 10  # as the keeper has them
_COUNT = struct.Struct("<Q")


class KeeperLaunch(ValueObject, frozen=True):
    """What a keeper runs: `argv` starts a VMM with `fds` as 3, 4, ..., writes its pid to `pid_file`, and ends. Then the
    keeper goes on as `uid`. `hidden` is a mount that the program must not see; `views` are what it alone sees: files
    and directories of the host at places of the host that are there already. `apart`: it begins with an empty network.
    """

    argv: Sequence[str]
    fds: Sequence[int]
    pid_file: Path
    uid: int
    hidden: Path | None = None
    views: Sequence[JailGrant] = ()
    apart: bool = False


class KeeperRecord(ValueObject, frozen=True):
    """What a keeper wrote down: process ids of this host, which may be others' by now; a wait status, in Unix seconds
    when."""

    keeper: int | None = None
    """Its process id; None before it has begun."""
    vmm: int | None = None
    """The VMM's process id; None before it has begun."""
    status: int | None = None
    """As wait(2) gives it; None while the VMM runs, or where its keeper was killed."""
    at: float = 0.0


def record_path(run: RunDir) -> Path:
    return run.path / "keeper"


def console_path(run: RunDir) -> Path:
    return run.path / "console"


async def launch(run: RunDir, wanted: KeeperLaunch) -> int:
    """Start keeper and VMM; the keeper's pid. Raises `Unavailable` with the words of the program that failed."""
    with anyio.CancelScope(shield=True):
        said = await _begin(run, wanted)
        if said is None:
            await abandon(run)
    if said is None:
        raise Unavailable(f"{wanted.argv[0]} did not end within {_LAUNCH_TIMEOUT_S:g} s")
    status, _, words = said.partition("\n")
    if status != "0":
        unsaid = f"{wanted.argv[0]} ended with wait status {status or 'unknown'}"
        raise Unavailable(" ".join(words.split())[-_REASON_MAX:] or unsaid)
    pid = read_record(run).keeper
    assert pid is not None, "a keeper that answers has written who it is"
    return pid


async def abandon(run: RunDir) -> None:
    """End a keeper and all that it started, wherever that is. Nobody there is no error."""
    pid = read_record(run).keeper
    if pid is None or not _is_keeper(pid, run):
        return
    for below in await in_thread(Pool.HOST, proc.descendants, pid):
        with suppress(ProcessLookupError):
            os.kill(below.pid, signal.SIGKILL)
    await end(pid, lambda: _is_keeper(pid, run))


async def bury(run: RunDir) -> None:
    """Wait for the keeper of a VMM that is dead to write that down; one that does not is ended."""
    pid = read_record(run).keeper
    if pid is not None:
        with anyio.move_on_after(_LAST_WORDS_S):
            await ended(pid, lambda: _is_keeper(pid, run))
            return
        await abandon(run)


def _is_keeper(pid: int, run: RunDir) -> bool:
    """Ids are used again, and be it for the keeper of another machine."""
    return proc.has_open(pid, record_path(run))


def read_record(run: RunDir) -> KeeperRecord:
    """Nothing where there is no keeper; a line that a crash of the host cut does not count."""
    try:
        lines = record_path(run).read_bytes().rstrip(b"\0").split(b"\n")[:-1]
    except FileNotFoundError:
        return KeeperRecord()
    found = {words[0]: [int(word) for word in words[1:]] for words in map(bytes.split, lines)}
    [keeper], [vmm] = found.get(b"keeper", [None]), found.get(b"vmm", [None])
    status, at_ns = found.get(b"ended", (None, 0))
    return KeeperRecord(keeper=keeper, vmm=vmm or None, status=status, at=at_ns / 1e9)


def read_end(run: RunDir) -> VmmEnd | None:
    record = read_record(run)
    if record.status is None:
        return None
    return VmmEnd(status=os.waitstatus_to_exitcode(record.status), at=record.at, console=read_console(run))


def read_console(run: RunDir) -> bytes:
    """The last of it, without what the keeper may be writing over at this moment."""
    try:
        with console_path(run).open("rb", buffering=0) as file:
            count = _count(file.fileno())
            ring = os.pread(file.fileno(), _RING, _COUNT.size)
            first = max(0, _count(file.fileno()) + _CHUNK - _RING)
    except FileNotFoundError:
        return b""
    at = first % _RING
    return (ring + ring)[at : at + max(0, count - first)]


def _count(fd: int) -> int:
    return int(_COUNT.unpack(os.pread(fd, _COUNT.size, 0))[0])


def _argv(wanted: KeeperLaunch) -> list[str]:
    options = [f"--pass={len(wanted.fds)}", f"--pid={wanted.pid_file}", f"--become={wanted.uid}"]
    options += [f"--hide={wanted.hidden}"] if wanted.hidden is not None else []
    options += ["--apart"] if wanted.apart else []
    for view in wanted.views:
        options += [f"--from={view.source}", f"--{'give' if view.writable else 'show'}={view.target}"]
    return [str(guest.keeper_path()), *options, "--", *wanted.argv]


async def _begin(run: RunDir, wanted: KeeperLaunch) -> str | None:
    """All that the keeper answers."""
    answer, said_to = os.pipe2(os.O_CLOEXEC)
    try:
        with _files(run, said_to) as own:
            argv = _argv(wanted)
            await reap(await in_thread(Pool.HOST, lambda: spawn(argv, fds=[*wanted.fds, *own])))
        return await _read(answer)
    finally:
        os.close(answer)


@contextmanager
def _files(run: RunDir, said_to: int) -> Iterator[tuple[int, int, int]]:
    """What a keeper has beside the VMM's descriptors, fresh. Room for it is taken now: a full disk loses no ending."""
    with ExitStack() as stack:
        stack.callback(os.close, said_to)
        record = stack.enter_context(_taken(record_path(run), _RECORD_BYTES))
        console = stack.enter_context(_taken(console_path(run), _COUNT.size + _RING))
        yield said_to, record, console


@contextmanager
def _taken(path: Path, size: int) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
        yield fd
    except OSError as error:
        raise Unavailable(f"no room for {path}: {error.strerror}") from error
    finally:
        os.close(fd)


async def _read(answer: int) -> str | None:
    """All that comes until the keeper has nothing more to say; None when that takes too long."""
    said = b""
    with anyio.move_on_after(_LAUNCH_TIMEOUT_S):
        while len(said) < _ANSWER_MAX:
            await anyio.wait_readable(answer)
            more = os.read(answer, _ANSWER_MAX)
            if not more:
                return said.decode("utf-8", "replace")
            said += more
    return None
