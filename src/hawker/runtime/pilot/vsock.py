"""The channel through vsock, as Firecracker and Cloud Hypervisor offer it: a unix socket of the VMM, on which a client
names the guest's port before anything else.

They refuse while nobody listens in the guest, and the socket is not there before the VMM runs. So a connection goes on
asking for as long as the machine lives; deadlines are the caller's.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from hawker.clock import Clock
from hawker.errors import Unavailable
from hawker.runtime.driver import OutputChunk
from hawker.runtime.pilot.channel import endpoint
from hawker.runtime.pilot.connection import GONE, LINGER_S, ByteStream, Connection, OnData, OnEnd
from hawker.runtime.pilot.journal_disk import journal_disk_file, journal_disk_output
from hawker.runtime.pilot.orphans import holder_of
from hawker.runtime.pilot.output import OutputReader
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.spec import InstanceSpec

PORT = 1024
_ASK_AGAIN_S = 0.01
_ANSWER = re.compile(rb"OK \d{1,10}")
_ANSWER_MAX = 16  # bytes, with the newline


class VsockChannel:
    """Keeps `Channel`. What is launched inherits the ledger as 3."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reader = OutputReader()

    @contextmanager
    def files(self, run: RunDir, spec: InstanceSpec, *, resumed: bool = False) -> Iterator[tuple[int, ...]]:
        run.vsock.unlink(missing_ok=True)
        with journal_disk_file(run, spec, resumed=resumed) as ledger:
            yield (ledger,)

    def connect(self, run: RunDir, *, kept: bool = False) -> Connection:
        if not run.alive():
            raise Unavailable("the machine does not answer: it does not run")
        return Connection(partial(VsockStream, run))

    async def pid(self, run: RunDir) -> int | None:
        return await holder_of(run)

    def output(self, run: RunDir, *, after: int = -1, tail: int | None = None) -> list[OutputChunk]:
        return journal_disk_output(run, self._reader, self._clock.now(), after=after, tail=tail)


class VsockStream:
    """Keeps `Stream`, for as long as the machine lives."""

    def __init__(self, run: RunDir, on_data: OnData, on_end: OnEnd) -> None:
        self._run = run
        self._on_data = on_data
        self._on_end = on_end
        self._waiting = bytearray()  # until the guest listens
        self._answer = b""
        self._below: ByteStream | None = None  # to the VMM
        self._joined = False  # to the guest, by the VMM
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.TimerHandle | None = None
        self._next = self._loop.call_later(0, self._ask)

    def write(self, data: bytes) -> None:
        if self._joined and self._below is not None:
            self._below.write(data)
        elif not self._closing:
            self._waiting += data

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if self._joined and self._below is not None:
            self._below.close()
        else:
            self._deadline = self._loop.call_later(LINGER_S, self.abort)

    def abort(self) -> None:
        self._closing = True
        self._next.cancel()
        if self._deadline is not None:
            self._deadline.cancel()
        if self._below is not None:
            self._below.abort()

    def _ask(self) -> None:
        if not self._run.alive():
            self._end(GONE)
            return
        try:
            joined = endpoint(self._run.vsock)
        except Unavailable:
            self._ask_again()
            return
        self._answer = b""
        self._below = ByteStream(joined, self._arrived, self._refused, on_closed=lambda: None)
        self._below.write(b"CONNECT %d\n" % PORT)

    def _ask_again(self) -> None:
        self._next = self._loop.call_later(_ASK_AGAIN_S, self._ask)

    def _refused(self, why: str) -> None:
        if self._joined:
            self._on_end(why)
        else:
            self._ask_again()

    def _arrived(self, data: bytes) -> None:
        if self._joined:
            self._on_data(data)
            return
        self._answer += data
        line, newline, said = self._answer.partition(b"\n")
        if newline and _ANSWER.fullmatch(line):
            self._join(said)
        elif newline or len(self._answer) > _ANSWER_MAX:
            self._end("the machine's VMM answers what is not of vsock")

    def _join(self, said: bytes) -> None:
        assert self._below is not None
        self._joined = True
        self._below.write(bytes(self._waiting))
        self._waiting.clear()
        if self._deadline is not None:  # closed meanwhile
            self._deadline.cancel()
            self._below.close()
        elif said:
            self._on_data(said)

    def _end(self, why: str) -> None:
        was_open = not self._closing
        self.abort()
        if was_open:
            self._on_end(why)
