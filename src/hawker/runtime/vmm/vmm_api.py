"""The HTTP API of one VMM: values in, values out, and errors in the VMM's own words.

What it says is for people to read, and may be a guest's: it is cut and cleaned before it is passed on.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec

from hawker.clock import Clock
from hawker.errors import CannotStart, Unavailable
from hawker.runtime.vmm.contract import Vm
from hawker.runtime.vmm.unix_http import Absent, exchange

REQUEST_TIMEOUT_S = 20.0
_APPEARS_S = 20.0  # from the launch to an API that listens
_LOOK_EVERY_S = 0.01
_MEMORY_S, _MIB_PER_S = 30.0, 20
_SAID_MAX = 400  # characters
_T = TypeVar("_T")


class VmmRefused(Unavailable):
    """The VMM understood a request, and did not do it. `said` is why, in its words."""

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One call of an API. `body` is what msgspec makes JSON of; None for none."""

    method: str
    target: str
    body: msgspec.Struct | None = None


@dataclass(frozen=True, slots=True)
class VmmApi:
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
                except Absent as error:
                    if not alive():
                        raise Unavailable(f"{self.name} ended before it listened: see the machine's console") from error
                await clock.sleep(_LOOK_EVERY_S)
        raise Unavailable(f"{self.name} does not listen within {_APPEARS_S:g} s")

    async def send(self, request: ApiRequest, *, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """A request whose answer says nothing more."""
        await self._asked(request, timeout_s)

    async def try_send(self, request: ApiRequest) -> None:
        """Where it does not matter whether it is done."""
        with suppress(Unavailable):
            await self.send(request)

    async def ask(self, request: ApiRequest, shape: type[_T]) -> _T:
        answer = await self._asked(request, REQUEST_TIMEOUT_S)
        try:
            return msgspec.json.decode(answer, type=shape)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Unavailable(f"{self.name} answers {_named(request)} with what cannot be read: {error}") from error

    async def _asked(self, request: ApiRequest, timeout_s: float) -> bytes:
        """Raises `VmmRefused`; `Absent` and `HungUp` as they are, for what they tell of the VMM's life."""
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


# The program of a VMM on this host: where it is, and whether it is a version that can be spoken to.

_TELLS_WITHIN_S = 10.0
_VERSION = re.compile(r"(?<![\d.])v?(\d{1,4})\.(\d{1,4})")


@dataclass(frozen=True, slots=True)
class VmmProgram:
    """`command` is its name on the PATH, or a path. `least` and `known` are versions: the oldest that has all that is
    asked of it, and the one whose documents its driver was written by."""

    command: str
    title: str
    source: str  # where people get it
    least: tuple[int, int]
    known: tuple[int, int]

    def find(self) -> str:
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


# The files of a snapshot that a VMM writes by itself, by name, into a directory below its own. The VMM may be a
# guest's by then: no link is followed.


def discard(own: Path, inside: str, names: Iterable[str]) -> None:
    """Take them away; what is not there is no error. `own` is the VMM's directory on the host, `inside` the snapshot's
    as the VMM sees it."""
    with suppress(OSError):
        place = os.open(own / Path(inside).name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name in names:
                with suppress(OSError):
                    os.unlink(name, dir_fd=place)
        finally:
            os.close(place)
