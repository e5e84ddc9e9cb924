"""An edge process that goes while somebody is still in there, and the ones after it, which count who that is.

The process that leaves lets nobody in any more, and says at a socket how many are left in each machine, whole and at
each change. Its end ends the connection, however it ends, and then nobody is left. A machine has one gate all the same:
the one that lets in counts everybody.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec
from anyio.abc import TaskGroup

from hawker.clock import Clock
from hawker.edge.gates import Gates, LeftInside
from hawker.log import bind

_SUFFIX = ".leaving"
_LOOK_EVERY_S = 0.1
_FIRST_WORD_S = 3.0
"""Seconds that a process waits for one that leaves to say who is in there. A process that takes longer has an event
loop that stands still, or has just ended."""
_LINE_BYTES = 4 << 20
_log = bind("hawker.edge")


class Leaver:
    """Says how many visits are left in each machine, at a socket in `folder` that is named after this process:
    `number`."""

    def __init__(self, folder: Path, number: int, gates: Gates, clock: Clock) -> None:
        self._place = folder / f"{number}{_SUFFIX}"
        self._gates = gates
        self._clock = clock
        self._hearers: set[asyncio.StreamWriter] = set()

    async def serve(self, within_s: float, begun: Callable[[], None]) -> None:
        """Serve the socket until no visit is left, or for `within_s` seconds. `begun` is called once the socket can be
        asked."""
        server = await asyncio.start_unix_server(self._greet, self._place)
        said = self._left()
        begun()
        try:
            with anyio.move_on_after(within_s):
                while self._gates.have_inside:
                    await self._clock.sleep(_LOOK_EVERY_S)
                    if (left := self._left()) != said:
                        said = left
                        self._tell(_line(left))
        finally:
            server.close()
            for hearer in self._hearers:
                hearer.close()
            _remove(self._place)

    def _tell(self, line: bytes) -> None:
        for hearer in self._hearers:
            hearer.write(line)

    async def _greet(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._hearers.add(writer)
        writer.write(_line(self._left()))
        with suppress(OSError):
            await writer.wait_closed()
        self._hearers.discard(writer)

    def _left(self) -> LeftInside:
        """In machines of this host: what other hosts' gates let in is counted there."""
        return {gate.route.id: counts for gate in self._gates.of.values() if gate.is_near and (counts := gate.inside)}


class EarlierProcesses:
    """Hears the processes that leave: `gates` count the visits that are left in each machine."""

    def __init__(self, folder: Path, gates: Gates, clock: Clock) -> None:
        self._folder = folder
        self._gates = gates
        self._now = clock.monotonic

    async def meet(self, tasks: TaskGroup) -> None:
        """Returns once each process that leaves has said how many are left, or will not."""
        async with anyio.create_task_group() as meetings:
            for place in sorted(self._folder.glob(f"*{_SUFFIX}")):
                meetings.start_soon(self._meet, place, tasks)

    async def _meet(self, place: Path, tasks: TaskGroup) -> None:
        with anyio.move_on_after(_FIRST_WORD_S):
            try:
                reader, writer = await asyncio.open_unix_connection(place, limit=_LINE_BYTES)
                self._hear(place.stem, await reader.readuntil())
            except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
                _remove(place)  # it has ended
                return
            tasks.start_soon(self._follow, place.stem, reader, writer)
            return
        _log.warning("an edge process that leaves does not say who is in there", extra={"process": place.stem})

    async def _follow(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
                while True:
                    self._hear(name, await reader.readuntil())
        finally:
            writer.close()
        self._gates.remain(name, {}, self._now())

    def _hear(self, name: str, line: bytes) -> None:
        self._gates.remain(name, msgspec.json.decode(line, type=LeftInside), self._now())


def _remove(place: Path) -> None:
    place.unlink(missing_ok=True)


def _line(left: LeftInside) -> bytes:
    return msgspec.json.encode(left) + b"\n"
