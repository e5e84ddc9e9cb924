"""The guest programs of the fake driver: what a command would write, how long it runs, how it ends. Nothing is
executed.

Understood: echo, printf, sleep, exit, true, false, cat, env, the same as words of the sample program, and `sh -c`
with these joined by `;` or `&&`, `>&2` and `$NAME`. A command in `MISSING` does not exist. Whatever else is taken for
a server: it runs until it is stopped.
"""

import math
import re
import shlex
import signal
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

import anyio
from msgspec.structs import replace

from hawker.clock import Clock
from hawker.runtime.driver import Exit, OutputChunk
from hawker.value_object import ValueObject

MISSING = frozenset({"/nope", "/no/such/program", "/does/not/exist", "nope", "no-such-program"})
_SHELLS = frozenset({"sh", "bash", "ash"})
_NAME = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_NOT_FOUND = 127
_SIGNALLED = 128


class Script(ValueObject, frozen=True):
    """`runs_s` is infinite for a server. `missing` is the reason why it could not be executed. `echoes`: it writes
    what it reads, until the end of its input."""

    output: tuple[tuple[int, bytes], ...] = ()
    runs_s: float = 0.0
    code: int = 0
    missing: str = ""
    echoes: bool = False


class _Place(ValueObject, frozen=True):
    """What a command finds around it."""

    env: Mapping[str, str]
    files: Mapping[str, bytes]


def read_command(argv: Sequence[str], env: Mapping[str, str], files: Mapping[str, bytes] | None = None) -> Script:
    """The script of a whole command line in a machine with these files, which `cat` shows."""
    place = _Place(env, files or {})
    name = argv[0].rsplit("/", 1)[-1]
    if argv[0] in MISSING:
        return Script(code=_NOT_FOUND, missing=f"exec {argv[0]}: no such file or directory")
    if name in _SHELLS and len(argv) > 2 and argv[1].lstrip("-").endswith("c"):
        return _read_shell(argv[2], place)
    return _simple(name, argv[1:], place)


def _read_shell(text: str, place: _Place) -> Script:
    """Commands in order; `exit` and a server end the list, and a failure ends what `&&` joins to it."""
    whole = Script()
    for part in re.split(r"\s*(;|&&|\n)\s*", text):
        if part == "&&" and whole.code != 0:
            return whole
        words = _words(part, place.env)
        if part in ("", ";", "&&", "\n") or not words:
            continue
        step = _simple(words[0].rsplit("/", 1)[-1], words[1:], place)
        whole = replace(
            step,
            output=whole.output + step.output,
            runs_s=whole.runs_s + step.runs_s,
            echoes=whole.echoes or step.echoes,
        )
        if words[0] == "exit" or math.isinf(step.runs_s):
            return whole
    return whole


def _words(part: str, env: Mapping[str, str]) -> list[str]:
    """`exec` is dropped: what follows takes the shell's place."""
    filled = _NAME.sub(lambda match: env.get(match[1] or match[2], ""), part)
    words = shlex.split(filled)
    return words[1:] if words[:1] == ["exec"] else words


def _simple(name: str, arguments: Sequence[str], place: _Place) -> Script:
    match name:
        case "echo" | "printf":
            return _print(arguments, newline=name == "echo")
        case "sleep":
            return Script(runs_s=sum(math.inf if word == "infinity" else float(word) for word in arguments))
        case "exit":
            return Script(code=int(arguments[0]) if arguments else 0)
        case "true" | "false":
            return Script(code=int(name == "false"))
        case "env":
            return Script(output=((1, "".join(f"{key}={value}\n" for key, value in place.env.items()).encode()),))
        case "cat" if not arguments:
            return Script(runs_s=math.inf, echoes=True)
        case "cat":
            return Script(output=tuple((1, place.files[path]) for path in arguments if path in place.files))
        case "hello" if arguments and not arguments[0].isdecimal():
            return _simple(arguments[0], arguments[1:], place)
        case _:
            return Script(runs_s=math.inf)


def _print(words: Sequence[str], *, newline: bool) -> Script:
    stream = 2 if ">&2" in words else 1
    text = " ".join(word for word in words if word != ">&2")
    return Script(output=((stream, (text + "\n" if newline else text.replace("\\n", "\n")).encode()),))


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
