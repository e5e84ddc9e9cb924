"""Facts about the fake's exec sessions and its cutting of output."""

import signal

import pytest

from hawker.clock import ManualClock
from hawker.runtime.driver import OutputChunk
from hawker.runtime.fake_program import Script, read_command
from hawker.runtime.fake_session import FakeExecSession, at_most, last_lines

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
