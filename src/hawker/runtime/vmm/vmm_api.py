"""What VMMs that are driven by an HTTP API share: the calls over a unix socket, the program, and the order in which
things are said. Values in, values out, and errors in the VMM's own words, cut and cleaned: they may be a guest's.

The socket is in a directory that the VMM can write to, and a guest may have taken the VMM over: a link is not followed,
an answer is bounded in time and bytes, and one that is endless, cut or no HTTP is an error like any other.
"""

import asyncio
import os
import re
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.lowlevel
import httptools
import msgspec

from hawker.clock import Clock
from hawker.errors import CannotStart, SnapshotLost, Unavailable
from hawker.fair.threads import Pool, in_thread
from hawker.http.connection_pool import Http1Connection, connect_unix
from hawker.http.message import HttpResponse, encode_request
from hawker.runtime.pilot.channel import PilotChannel
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.vsock import VsockChannel
from hawker.runtime.spec import DiskLimits
from hawker.runtime.vmm.contract import Restored, Vm
from hawker.value_object import ValueObject

ANSWER_MAX = 1 << 20
"""Bytes of an answer, its headers too."""


class VmmAbsent(Unavailable):
    """Nobody listens, or not yet."""


class VmmHungUp(Unavailable):
    """The connection ended before an answer was complete: the VMM has ended, or closed it."""


async def exchange(path: Path, method: str, target: str, body: bytes | None, *, timeout_s: float) -> HttpResponse:
    """What the server at `path` answers, over a connection of its own, within `timeout_s` seconds. Raises `VmmAbsent`,
    `VmmHungUp`, and `Unavailable` for all else that is no answer."""
    headers = [("Host", "localhost"), ("Accept", "application/json")]
    if body is not None:
        headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    deadline = asyncio.get_running_loop().time() + timeout_s
    connection = await connect_unix(_connected(path), lambda: Http1Connection(max_response_bytes=ANSWER_MAX))
    try:
        return await connection.request(encode_request(method, target, headers, body or b""), deadline)
    except TimeoutError as error:
        raise Unavailable(f"no answer to {method} {target} within {timeout_s:g} s") from error
    except OSError as error:
        raise VmmHungUp(f"the connection ended before an answer was complete: {error}") from error
    except httptools.HttpParserError as error:
        raise Unavailable(f"what answers {method} {target} is no HTTP: {error}") from error
    finally:
        connection.close()
        await anyio.lowlevel.cancel_shielded_checkpoint()  # the event loop closes the socket meanwhile


def _connected(path: Path) -> socket.socket:
    """By the socket's own descriptor: its path may be longer than an address, and is no link to another's. Raises
    `VmmAbsent`, and `Unavailable` for what is no socket."""
    joined = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    joined.setblocking(False)
    try:
        with _opened(path) as place:
            if not stat.S_ISSOCK(os.fstat(place).st_mode):
                raise Unavailable(f"{path.name} is no socket: the directory of the VMM was tampered with")
            joined.connect(f"/proc/self/fd/{place}")
        return joined
    except OSError as error:
        joined.close()
        raise VmmAbsent(f"nobody listens at {path.name}: {error.strerror}") from error
    except Unavailable:
        joined.close()
        raise


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield place
    finally:
        os.close(place)


SOCKET = "api.sock"
"""The socket of the API, in the VMM's directory."""

REQUEST_TIMEOUT_S = 20.0
_APPEARS_S = 20.0  # from the launch to an API that listens
_LOOK_EVERY_S = 0.01
_MEMORY_S, _MIB_PER_S = 30.0, 20
_SAID_MAX = 400  # characters
_TELLS_WITHIN_S = 10.0  # for a program to say its version
_VERSION = re.compile(r"(?<![\d.])v?(\d{1,4})\.(\d{1,4})")
_LET_GO_S = 10.0  # to undo a snapshot that failed
_REFILL_MS = 1000  # well above the 100 ms for which a limiter rests
_T = TypeVar("_T")


class VmmRefused(Unavailable):
    """The VMM understood a request, and did not do it. `said` is why, in its words."""

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said


class ApiRequest(ValueObject, frozen=True):
    """One call of an API. `body` is what msgspec makes JSON of; None for none."""

    method: str
    """Of HTTP, in upper case."""
    target: str
    """The path, from its slash on."""
    body: msgspec.Struct | None = None


class ApiBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a request. What has no value is not said."""


class VmmTokenBucket(ApiBody, frozen=True, kw_only=True):
    """`size` is in bytes or operations; so much may be used at once, and comes back in `refill_time` ms."""

    size: int
    refill_time: int


class RateLimiter(ApiBody, frozen=True, kw_only=True):
    """The limits of one disk: bytes and operations, each None for no limit."""

    bandwidth: VmmTokenBucket | None = None
    ops: VmmTokenBucket | None = None


def rate_limiter(limits: DiskLimits) -> RateLimiter | None:
    """None for a disk without limits."""
    if limits == DiskLimits():
        return None
    return RateLimiter(bandwidth=_bucket(limits.bytes_per_s), ops=_bucket(limits.operations_per_s))


def _bucket(per_s: int) -> VmmTokenBucket | None:
    return VmmTokenBucket(size=per_s, refill_time=_REFILL_MS) if per_s else None


class VmmApi(ValueObject, frozen=True):
    """`name` is the VMM's, for errors; `complaint` finds what an error's body says."""

    name: str
    socket: Path
    complaint: Callable[[bytes], str]

    async def appeared(self, first: ApiRequest, alive: Callable[[], bool], clock: Clock) -> None:
        """Return once `first` is answered, which must change nothing. Raises `Unavailable` when the VMM has ended, or
        takes too long."""
        with anyio.move_on_after(_APPEARS_S):
            while True:
                try:
                    return await self.send(first)
                except VmmAbsent as error:
                    if not alive():
                        raise Unavailable(f"{self.name} ended before it listened: see the machine's console") from error
                await clock.sleep(_LOOK_EVERY_S)
        raise Unavailable(f"{self.name} does not listen within {_APPEARS_S:g} s")

    async def send(self, request: ApiRequest, *, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """A request whose answer says nothing more."""
        await self._asked(request, timeout_s)

    async def try_send(self, request: ApiRequest) -> None:
        """Send a request where it does not matter whether it is done."""
        with suppress(Unavailable):
            await self.send(request)

    async def ask(self, request: ApiRequest, shape: type[_T]) -> _T:
        """The answer to a request. Raises `VmmRefused`, and `Unavailable` for what cannot be read."""
        answer = await self._asked(request, REQUEST_TIMEOUT_S)
        try:
            return msgspec.json.decode(answer, type=shape)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Unavailable(f"{self.name} answers {_named(request)} with what cannot be read: {error}") from error

    async def _asked(self, request: ApiRequest, timeout_s: float) -> bytes:
        """Raises `VmmRefused`; `VmmAbsent` and `VmmHungUp` as they are, for what they tell of the VMM's life."""
        body = None if request.body is None else msgspec.json.encode(request.body)
        try:
            answer = await exchange(self.socket, request.method, request.target, body, timeout_s=timeout_s)
        except Unavailable as error:
            raise type(error)(f"{self.name}: {error}") from error
        if 200 <= answer.status < 300:
            return answer.body
        said = readable(self.complaint(answer.body)) or f"status {answer.status}"
        raise VmmRefused(f"{self.name} refuses {_named(request)}: {said}", said)


def patience_s(vm: Vm) -> float:
    """How long the slowest disk that is waited for takes to write or read a machine's memory."""
    return _MEMORY_S + vm.max_memory_mib / _MIB_PER_S


def readable(text: str) -> str:
    """One line of what can be printed, of bounded length."""
    plain = "".join(char if char.isprintable() else " " for char in text[: 2 * _SAID_MAX])
    return " ".join(plain.split())[:_SAID_MAX]


def _named(request: ApiRequest) -> str:
    return f"{request.method} {request.target}"


class VmmProgram(ValueObject, frozen=True):
    """The program of a VMM on this host: where it is, and whether it is a version that can be spoken to. `command` is
    its name on the PATH, or a path. `least` and `known` are versions: the oldest that has all that is asked of it, and
    the one whose documents its driver was written by."""

    command: str
    title: str
    """Its name for people."""
    source: str  # where people get it
    least: tuple[int, int]
    known: tuple[int, int]

    def find(self) -> str:
        """Its path. Raises `CannotStart` when it is not on the PATH."""
        found = shutil.which(self.command)
        if found is None:
            raise CannotStart(
                f"{self.command} is missing: install {self.title} {_dotted(self.known)}, see {self.source}"
            )
        return found

    async def version(self) -> str:
        """Its own words, such as "Firecracker v1.16.1". Raises `CannotStart`."""
        try:
            with anyio.fail_after(_TELLS_WITHIN_S):
                done = await anyio.run_process((self.find(), "--version"), stdin=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError, TimeoutError) as error:
            raise CannotStart(f"{self.command} does not tell its version: {error}") from error
        return done.stdout.decode("utf-8", "replace").partition("\n")[0].strip()

    async def check(self, lack_of_kvm: Callable[[], str]) -> None:
        """Raises `CannotStart`. A later version is taken: what it does not do, it says at the first boot."""
        said = await self.version()
        found = _VERSION.search(said)
        if found is None:
            raise CannotStart(f"{self.command} is no {self.title}: it says {said[:80]!r} of its version")
        version = int(found[1]), int(found[2])
        if version < self.least:
            least = f"{_dotted(self.known)}, or {_dotted(self.least)} at least"
            raise CannotStart(f"{self.title} {_dotted(version)} is too old: install {least}")
        if lack := lack_of_kvm():
            raise CannotStart(f"{self.title} needs KVM: {lack}; choose --driver qemu, which can do without")


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


class VmmCalls(ValueObject, frozen=True):
    """What is said to one VMM, where all VMMs with an API are told the same things. `first` changes nothing and is
    answered as soon as the API is there; `boot` gives all requests from a fresh VMM to a guest that runs, with the path
    of its vsock; `save` and `load` take the directory of a snapshot, as the VMM sees it, and `snapshot_files` are what
    it writes there; `complaint` finds what an error's body says."""

    first: ApiRequest
    boot: Callable[[Vm, str], Iterable[ApiRequest]]
    pause: ApiRequest
    resume: ApiRequest
    save: Callable[[str], ApiRequest]
    load: Callable[[str], ApiRequest]
    snapshot_files: tuple[str, ...]
    complaint: Callable[[bytes], str]


class ApiVmm:
    """The part of `Vmm` that all monitors with an API share. `lack_of_kvm` says why KVM cannot be used, "" when it
    can. It reaches its guests by vsock."""

    accelerates = True
    kernel_format = "vmlinux"
    snapshots = True

    def __init__(self, clock: Clock, lack_of_kvm: Callable[[], str], program: VmmProgram, calls: VmmCalls) -> None:
        self._clock = clock
        self._lack_of_kvm = lack_of_kvm
        self._program = program
        self._calls = calls
        self.program = program.command

    def channel(self) -> PilotChannel:
        return VsockChannel(self._clock)

    async def check(self) -> None:
        await self._program.check(self._lack_of_kvm)

    async def version(self) -> str:
        return await self._program.version()

    async def boot(self, vm: Vm, run: RunDir, restored: Restored | None) -> None:
        """Raises also when a request of those before the start is refused: the VMM is then of no more use."""
        api = self._api(run)
        await api.appeared(self._calls.first, run.alive, self._clock)
        if restored is not None:
            await self._load(api, vm, restored)
            return
        for request in self._calls.boot(vm, f"{vm.directory}/{run.vsock.name}"):
            await api.send(request)

    async def _load(self, api: VmmApi, vm: Vm, restored: Restored) -> None:
        try:
            await api.send(self._calls.load(restored.directory), timeout_s=patience_s(vm))
        except Unavailable as error:
            raise SnapshotLost(f"the snapshot cannot be taken up: {error}") from error

    async def save(self, vm: Vm, run: RunDir, directory: str) -> None:
        api = self._api(run)
        await api.send(self._calls.pause)
        try:
            await api.send(self._calls.save(directory), timeout_s=patience_s(vm))
        except BaseException:
            with anyio.move_on_after(_LET_GO_S, shield=True):
                await in_thread(Pool.HOST, discard, run.vmm, directory, self._calls.snapshot_files)
                await api.try_send(self._calls.resume)
            raise

    async def proceed(self, run: RunDir) -> None:
        await self._api(run).send(self._calls.resume)

    def _api(self, run: RunDir) -> VmmApi:
        return VmmApi(self._program.title, run.vmm / SOCKET, self._calls.complaint)


def discard(own: Path, inside: str, names: Iterable[str]) -> None:
    """Take away the files of a snapshot that a VMM wrote; what is not there is no error. `own` is the VMM's directory
    on the host, `inside` the snapshot's as the VMM sees it. The VMM may be a guest's by then: no link is followed."""
    with suppress(OSError):
        place = os.open(own / Path(inside).name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name in names:
                with suppress(OSError):
                    os.unlink(name, dir_fd=place)
        finally:
            os.close(place)
