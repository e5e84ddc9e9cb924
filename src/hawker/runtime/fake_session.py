"""An exec session of the fake driver, and what it does with output: cutting it to a size and to lines."""

import math
import signal
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

import anyio

from hawker.clock import Clock
from hawker.runtime.driver import Exit, OutputChunk
from hawker.runtime.fake_program import Script

_SIGNALLED = 128


class FakeExecSession:
    """A command beside a workload. Its output is known from the start; a command that echoes ends with its input."""

    def __init__(self, clock: Clock, script: Script) -> None:
        self._clock = clock
        self._script = script
        self._input: list[bytes] = []
        self._done = anyio.Event()
        self._signal = 0
        if script.missing or math.isfinite(script.runs_s):
            self._done.set()

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        for piece in self._script.output:
            yield piece
        await self._done.wait()
        for data in self._input:
            yield 1, data

    async def send(self, data: bytes) -> None:
        if self._script.echoes and not self._done.is_set():
            self._input.append(data)

    async def send_eof(self) -> None:
        if self._script.echoes:
            self._done.set()

    async def resize(self, rows: int, cols: int) -> None:
        """No terminal to resize."""

    async def signal(self, signal: int) -> None:
        if not self._done.is_set():
            self._signal = signal
            self._done.set()

    async def wait(self) -> Exit:
        await self._done.wait()
        script = self._script
        if math.isfinite(script.runs_s):
            await self._clock.sleep(script.runs_s)
        code = _SIGNALLED + self._signal if self._signal else script.code
        return Exit(exit_code=code, signal=self._signal, exited_at=self._clock.now(), reason=script.missing)

    async def close(self) -> None:
        await self.signal(signal.SIGHUP)


def at_most(chunks: Iterable[OutputChunk], limit: int) -> list[OutputChunk]:
    taken: list[OutputChunk] = []
    size = 0
    for chunk in chunks:
        size += len(chunk.data)
        if taken and size > limit:
            break
        taken.append(chunk)
    return taken


def last_lines(chunks: list[OutputChunk], tail: int | None) -> list[OutputChunk]:
    """The chunks that hold the last `tail` lines; the first of them is cut to size."""
    if tail is None:
        return chunks
    kept: list[OutputChunk] = []
    for chunk in reversed(chunks):
        if tail <= 0:
            break
        lines = chunk.data.splitlines(keepends=True)
        kept.append(replace(chunk, data=b"".join(lines[-tail:])))
        tail -= len(lines)
    return kept[::-1]
