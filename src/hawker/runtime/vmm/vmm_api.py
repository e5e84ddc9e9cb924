"""The HTTP API of one VMM: values in, values out, and errors in the VMM's own words.

What it says is for people to read, and may be a guest's: it is cut and cleaned before it is passed on.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec

from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.runtime.vmm.contract import Vm
from hawker.runtime.vmm.unix_http import Absent, exchange

REQUEST_TIMEOUT_S = 20.0
_APPEARS_S = 20.0  # from the launch to an API that listens
_LOOK_EVERY_S = 0.01
_MEMORY_S, _MIB_PER_S = 30.0, 20
_SAID_MAX = 400  # characters
_T = TypeVar("_T")


class Refused(Unavailable):
    """The VMM understood a request, and did not do it. `said` is why, in its words."""

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said


@dataclass(frozen=True, slots=True)
class Request:
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

    async def appeared(self, first: Request, alive: Callable[[], bool], clock: Clock) -> None:
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

    async def send(self, request: Request, *, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """A request whose answer says nothing more."""
        await self._asked(request, timeout_s)

    async def try_send(self, request: Request) -> None:
        """Where it does not matter whether it is done."""
        with suppress(Unavailable):
            await self.send(request)

    async def ask(self, request: Request, shape: type[_T]) -> _T:
        answer = await self._asked(request, REQUEST_TIMEOUT_S)
        try:
            return msgspec.json.decode(answer, type=shape)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Unavailable(f"{self.name} answers {_named(request)} with what cannot be read: {error}") from error

    async def _asked(self, request: Request, timeout_s: float) -> bytes:
        """Raises `Refused`; `Absent` and `HungUp` as they are, for what they tell of the VMM's life."""
        body = None if request.body is None else msgspec.json.encode(request.body)
        try:
            answer = await exchange(self.socket, request.method, request.target, body, timeout_s=timeout_s)
        except Unavailable as error:
            raise type(error)(f"{self.name}: {error}") from error
        if 200 <= answer.status < 300:
            return answer.body
        said = readable(self.complaint(answer.body)) or f"status {answer.status}"
        raise Refused(f"{self.name} refuses {_named(request)}: {said}", said)


def patience_s(vm: Vm) -> float:
    """How long the slowest disk that is waited for takes to write or read a machine's memory."""
    return _MEMORY_S + vm.max_memory_mib / _MIB_PER_S


def readable(text: str) -> str:
    """One line of what can be printed, of bounded length."""
    plain = "".join(char if char.isprintable() else " " for char in text[: 2 * _SAID_MAX])
    return " ".join(plain.split())[:_SAID_MAX]


def _named(request: Request) -> str:
    return f"{request.method} {request.target}"
