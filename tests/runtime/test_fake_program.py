"""Facts about what the fake driver takes a command for."""

import math
import signal

import pytest

from hawker.clock import ManualClock
from hawker.runtime.driver import OutputChunk
from hawker.runtime.fake_program import FakeExecSession, Script, at_most, last_lines, read_command


@pytest.mark.parametrize(
    "argv, expected",
    [
        (("true",), Script()),
        (("/bin/false",), Script(code=1)),
        (("exit", "7"), Script(code=7)),
        (("sleep", "2"), Script(runs_s=2.0)),
        (("sleep", "infinity"), Script(runs_s=math.inf)),
        (("/usr/sbin/nginx", "-g", "daemon off;"), Script(runs_s=math.inf)),
        (("echo", "a", "b"), Script(output=((1, b"a b\n"),))),
        (("printf", r"a\n"), Script(output=((1, b"a\n"),))),
        (("cat",), Script(runs_s=math.inf, echoes=True)),
        (("env",), Script(output=((1, b"NAME=world\n"),))),
        (("/nope", "x"), Script(code=127, missing="exec /nope: no such file or directory")),
    ],
)
def test_simple_commands(argv: tuple[str, ...], expected: Script) -> None:
    assert read_command(argv, {"NAME": "world"}) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("echo hi; exit 3", Script(output=((1, b"hi\n"),), code=3)),
        ("echo hello $NAME ${NAME}", Script(output=((1, b"hello world world\n"),))),
        ("echo out; echo err >&2", Script(output=((1, b"out\n"), (2, b"err\n")))),
        ("sleep 1; sleep 2 && exit 4", Script(runs_s=3.0, code=4)),
        ("false && echo no", Script(code=1)),
        ("exit 2; echo no", Script(code=2)),
        ("echo up; exec sleep infinity; echo no", Script(output=((1, b"up\n"),), runs_s=math.inf)),
        ("exec cat", Script(runs_s=math.inf, echoes=True)),
    ],
)
def test_shell_lines(text: str, expected: Script) -> None:
    assert read_command(("/bin/sh", "-c", text), {"NAME": "world"}) == expected


pytestmark = pytest.mark.anyio


def _session(*argv: str) -> FakeExecSession:
    return FakeExecSession(ManualClock(), read_command(argv, {}))


def _chunks(*pieces: bytes) -> list[OutputChunk]:
    return [OutputChunk(position, 0.0, 1, 0, data) for position, data in enumerate(pieces)]


async def test_output_then_the_status() -> None:
    session = _session("sh", "-c", "echo out; echo err >&2; exit 3")
    assert [piece async for piece in session.output()] == [(1, b"out\n"), (2, b"err\n")]
    assert (await session.wait()).exit_code == 3


async def test_a_command_takes_its_time() -> None:
    clock = ManualClock()
    began = clock.now()
    assert (await FakeExecSession(clock, Script(runs_s=8.0)).wait()).exited_at == began + 8.0


async def test_a_signal_ends_what_runs_and_nothing_else() -> None:
    running, done = _session("sleep", "infinity"), _session("true")
    await running.signal(signal.SIGTERM)
    await done.signal(signal.SIGTERM)
    assert (await running.wait()).exit_code == 143
    assert (await done.wait()).exit_code == 0


async def test_input_after_its_end_is_dropped() -> None:
    session = _session("cat")
    await session.send(b"kept")
    await session.send_eof()
    await session.send(b"late")
    assert [piece async for piece in session.output()] == [(1, b"kept")]


def test_output_is_cut_to_a_size_but_never_to_nothing() -> None:
    chunks = _chunks(b"aaaa", b"bb", b"c")
    assert at_most(chunks, 6) == chunks[:2]
    assert at_most(chunks, 1) == chunks[:1]


@pytest.mark.parametrize("tail, text", [(0, b""), (1, b"c\n"), (2, b"b\nc\n"), (9, b"a\nb\nc\n"), (None, b"a\nb\nc\n")])
def test_the_tail_is_counted_in_lines(tail: int | None, text: bytes) -> None:
    assert b"".join(chunk.data for chunk in last_lines(_chunks(b"a\nb\n", b"c\n"), tail)) == text
