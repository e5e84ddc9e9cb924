"""The edge's end of `edge.sock`: the feed comes in, requests go out and are answered. While the worker is away the edge
goes on with what it was told last, which it also keeps in a file: a new edge process reads it and waits for nobody.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from hawker.clock import Clock
from hawker.feed import (
    WORKER_SOCKET,
    AllMachines,
    AppAddress,
    AskReport,
    CloseMachine,
    EdgeAnswer,
    EdgeInbox,
    EdgeLogLine,
    EdgeReport,
    MachineChanged,
    MachineGone,
    MachineRoute,
    MoreMachines,
    RestMachine,
    SealedCertificate,
    ToEdge,
    ToWorker,
    WakeMachine,
    frame,
    in_parts,
)
from hawker.host.local_socket import connect_to
from hawker.host.own_user import WRITES
from hawker.ids import InstanceId, MachineId
from hawker.log import bind
from hawker.route_question import AskRoute

AWAY = "the node's daemon is away"
UNHEARD = "the node's daemon was asked, and did not answer"
"""The refusal when the worker did not answer in time: it may have done what it was asked for."""
_AGAIN_S, _LONGEST_AGAIN_S, _OF_ABSENCE = 0.1, 0.5, 1 / 20
"""The least and the most seconds until a worker that is away is looked for again, and the part of its absence: after a
twentieth of the time that it was away, within these bounds."""
_REST_OF_TIME = 30
"""After a write nothing is written for so many times as long as the write took."""
_READ_BYTES = 1 << 18
_ANSWER_WITHIN_S = 30.0
_MOST_EQUAL = 100_000
_MAP = 0x80
"""The least first byte of a map in MessagePack; a frame begins with a smaller byte."""
T = TypeVar("T")
_log = bind("hawker.edge")


class FeedReader(Protocol):
    """The reader of the worker's messages."""

    def whole(self, message: AllMachines) -> None:
        """Take the state of everything from now on. More of its machines may follow, and then `ended`."""

    def more(self, machines: Iterable[MachineRoute]) -> None: ...

    def ended(self, gone: Iterable[MachineId], certificates: Iterable[SealedCertificate]) -> None:
        """Note that all was told, with these certificates; the machines in `gone` were not among it."""

    def changed(self, machine: MachineRoute) -> None: ...

    def gone(self, machine_id: MachineId) -> None: ...

    def close(self, message: CloseMachine) -> None: ...

    def ask(self, message: AskReport) -> None: ...

    def explain(self, message: AskRoute) -> None: ...


class WorkerLink:
    """The connection to the worker. `folder` has the socket, and the folder that an edge writes in."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._writer: asyncio.StreamWriter | None = None
        self._away_since = 0.0
        self._calls: dict[int, asyncio.Future[str]] = {}
        self._number = 0
        self._known: dict[MachineId, MachineRoute] = {}
        self._last = AllMachines(machines=())  # without its machines
        self._untold: set[MachineId] = set()  # while all are told, those known that were not yet
        self._equal: dict[Hashable, Any] = {}  # each value that many machines have, once
        self._news = asyncio.Event()

    async def serve(self, reader: FeedReader) -> None:
        """Hand the worker's messages to `reader` until cancelled; connects again whenever the worker does."""
        self._begin_with_kept(reader)
        self._away_since = self._clock.monotonic()
        while True:
            with suppress(OSError, EOFError, ValueError):
                await self._converse(reader)
            self._hang_up()
            away_s = self._clock.monotonic() - self._away_since
            await self._clock.sleep(min(max(_AGAIN_S, away_s * _OF_ABSENCE), _LONGEST_AGAIN_S))

    async def keep(self) -> None:
        """Write down what the worker told last, soon after it was told, and with a small part of the time. Until
        cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self._clock.sleep(_REST_OF_TIME * await self._write())

    async def wake(self, machine_id: MachineId, *, rested: bool) -> str:
        """Ask the worker to start a machine. Returns why it is not started; empty when it will be."""
        return await self._call(lambda number: WakeMachine(call=number, id=machine_id, rested=rested))

    async def rest(self, machine_id: MachineId, instance: InstanceId, *, suspend: bool) -> str:
        """Ask the worker to stop or suspend a machine. Returns why it goes on; empty when it will stop. `UNHEARD` where
        only the worker's next word tells: the edge connects anew with a worker that did not answer, so that word
        comes."""
        said = await self._call(lambda call: RestMachine(call=call, id=machine_id, instance=instance, suspend=suspend))
        if said == UNHEARD:
            self._hang_up()
        return said

    def send(self, message: ToWorker) -> bool:
        """Send a message. Returns whether the worker is there. What it does not read is bounded by its own reading: it
        is of this host."""
        if self._writer is None:
            return False
        self._writer.write(frame(message))
        return True

    def say(self, line: EdgeLogLine) -> None:
        self.send(line)

    async def _call(self, message: Callable[[int], ToWorker]) -> str:
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        if not self.send(message(number)):
            return AWAY
        self._calls[number] = answer
        try:
            return await asyncio.wait_for(answer, _ANSWER_WITHIN_S)
        except TimeoutError:
            return UNHEARD
        finally:
            self._calls.pop(number, None)

    async def _converse(self, reader: FeedReader) -> None:
        stream, self._writer = await asyncio.open_unix_connection(sock=connect_to(self._folder / WORKER_SOCKET))
        self._writer.write(frame(EdgeReport(call=0, hears_parts=True)))
        inbox = EdgeInbox()
        while data := await stream.read(_READ_BYTES):
            for message in inbox.read(data):
                self._hear(message, reader)
                if isinstance(message, AllMachines | MoreMachines):  # clients are served in between
                    await self._clock.sleep(0)

    def _hear(self, message: ToEdge, reader: FeedReader) -> None:
        match message:
            case AllMachines():
                self._last = msgspec.structs.replace(
                    message, machines=(), app_addresses=self._shared_addresses(message.app_addresses)
                )
                self._untold = set(self._known)
                reader.whole(msgspec.structs.replace(self._last, machines=self._shared(message.machines)))
                if not message.more:
                    self._end(reader)
            case MoreMachines():
                self._last = _with(self._last, message.certificates)
                reader.more(self._shared(message.machines))
                if not message.more:
                    self._end(reader)
            case MachineChanged():
                (machine,) = self._shared((message.machine,))
                reader.changed(machine)
            case MachineGone():
                self._known.pop(message.id, None)
                self._untold.discard(message.id)
                reader.gone(message.id)
            case CloseMachine():
                reader.close(message)
            case AskReport():
                reader.ask(message)
            case AskRoute():
                reader.explain(message)
            case EdgeAnswer():
                answer = self._calls.get(message.call)
                if answer is not None and not answer.done():
                    answer.set_result(message.refused)
        if isinstance(message, MachineChanged | MachineGone):
            self._news.set()

    def _shared(self, machines: Iterable[MachineRoute]) -> tuple[MachineRoute, ...]:
        """They are known from now on. Of 100,000 machines most have the services of others, one name of an app and one
        of a hundred gates."""
        found = []
        for told in machines:
            self._untold.discard(told.id)
            known = self._known.get(told.id)
            if known != told:  # else what is said again would take new memory
                known = self._known[told.id] = msgspec.structs.replace(
                    told,
                    app=self._one(told.app, told.app),
                    org=self._one(told.org, told.org),
                    gate=self._one(told.gate, told.gate),
                    services=self._one(msgspec.msgpack.encode(told.services), told.services),
                    idle_s=self._one(told.idle_s, told.idle_s),
                    started_at=self._one(told.started_at, told.started_at),
                )
            found.append(known)
        return tuple(found)

    def _shared_addresses(self, told: tuple[AppAddress, ...]) -> tuple[AppAddress, ...]:
        if told == self._last.app_addresses:
            return self._last.app_addresses
        return tuple(
            AppAddress(app=self._one(each.app, each.app), ip=self._one(each.ip, each.ip), shared=each.shared)
            for each in told
        )

    def _one(self, key: Hashable, value: T) -> T:
        if len(self._equal) >= _MOST_EQUAL and key not in self._equal:
            self._equal.clear()
        found: T = self._equal.setdefault(key, value)
        return found

    def _end(self, reader: FeedReader) -> None:
        gone, self._untold = self._untold, set()
        for machine_id in gone:
            del self._known[machine_id]
        self._last = msgspec.structs.replace(self._last, more=False)
        reader.ended(gone, self._last.certificates)
        self._news.set()

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer, self._away_since = None, self._clock.monotonic()
        for answer in self._calls.values():
            if not answer.done():
                answer.set_result(UNHEARD)

    @property
    def _file(self) -> Path:
        return self._folder / WRITES / "routes"

    def _begin_with_kept(self, reader: FeedReader) -> None:
        inbox, is_first = EdgeInbox(), True
        with suppress(OSError, ValueError), self._file.open("rb") as file:
            while data := file.read(_READ_BYTES):
                if is_first and data[0] >= _MAP:  # as older versions kept it
                    self._hear(msgspec.msgpack.decode(data + file.read(), type=AllMachines), reader)
                    return
                is_first = False
                for message in inbox.read(data):
                    self._hear(message, reader)

    async def _write(self) -> float:
        """Seconds that it took, without what others did meanwhile. What changes meanwhile is written as it was or as it
        is, and again soon. A disk that is full costs only what a new edge process would know before the worker speaks
        to it."""
        draft, took_s = self._file.with_suffix(".new"), 0.0
        there = (self._known.get(each) for each in list(self._known))
        parts = in_parts(self._last, filter(None, there), self._last.certificates)
        try:
            with draft.open("wb") as file:
                began = self._clock.monotonic()
                for part in parts:
                    file.write(frame(part))
                    took_s += self._clock.monotonic() - began
                    await self._clock.sleep(0)
                    began = self._clock.monotonic()
            draft.rename(self._file)
        except OSError as error:
            _log.warning("routes not kept", extra={"reason": error.strerror})
        return took_s


def _with(told: AllMachines, certificates: tuple[SealedCertificate, ...]) -> AllMachines:
    return msgspec.structs.replace(told, certificates=told.certificates + certificates) if certificates else told
