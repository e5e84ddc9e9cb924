import os
import pty
import sys
import termios
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT, SIGWINCH, getsignal

import anyio
import pytest

from hawker.api.contract.exec import MACHINE_TERMINAL, Exited, TerminalRequest
from hawker.api.contract.machine import MachineParams
from hawker.api.in_process import InProcessCaller
from hawker.cli.exits import ExitStatus, Failure, sole_error
from hawker.cli.terminal import Descriptors, converse, is_terminal, own_descriptors, raw_mode, window
from hawker.clock import ManualClock
from hawker.errors import Unavailable
from tests.cli.fake_node import FakeNode, machine
from tests.waiting import LONG_S, eventually

pytestmark = pytest.mark.anyio

PARAMS = MachineParams(app_name="shop", machine_id="3d8f0000000001")


@dataclass(frozen=True, slots=True)
class Pipes:
    """Both ends of three pipes; the command line has `ends`."""

    ends: Descriptors
    stdin: int
    stdout: int
    stderr: int

    def close_input(self) -> None:
        os.close(self.stdin)


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr) = os.pipe(), os.pipe(), os.pipe()
    yield Pipes(Descriptors(stdin, stdout, stderr), to_stdin, from_stdout, from_stderr)
    for fd in (stdin, from_stdout, stdout, from_stderr, stderr):
        os.close(fd)


@contextmanager
def terminal(rows: int = 24, cols: int = 80) -> Iterator[tuple[int, int]]:
    """The person's end and the command line's end."""
    person, own = pty.openpty()
    termios.tcsetwinsize(own, (rows, cols))
    try:
        yield person, own
    finally:
        os.close(person)
        os.close(own)


async def run(ends: Descriptors, *command: str, tty: bool = False) -> Exited:
    node = FakeNode()
    node.add("shop", machine())
    caller = InProcessCaller(node.handlers(), ManualClock(), "tester")
    request = TerminalRequest(command=command, tty=tty, rows=24, cols=80)
    async with caller.socket(MACHINE_TERMINAL, request, params=PARAMS) as channel:
        with anyio.fail_after(60):
            return await converse(channel, ends, terminal=tty)


@asynccontextmanager
async def running(ends: Descriptors, *command: str, tty: bool = False) -> AsyncIterator[list[Exited]]:
    """The command under way; the list has its end once it is left."""
    ended: list[Exited] = []

    async def carry_on() -> None:
        ended.append(await run(ends, *command, tty=tty))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(carry_on)
        yield ended


async def read(fd: int) -> bytes:
    with anyio.fail_after(60):
        await anyio.wait_readable(fd)
    return os.read(fd, 65536)


async def test_input_goes_in_and_comes_back_until_its_end(pipes: Pipes) -> None:
    async with running(pipes.ends, "cat") as ended:
        os.write(pipes.stdin, b"hi\xff\n")
        assert await read(pipes.stdout) == b"hi\xff\n"
        pipes.close_input()
    assert ended[0].exit_code == 0


async def test_stdout_and_stderr_stay_apart(pipes: Pipes) -> None:
    pipes.close_input()
    await run(pipes.ends, "both")
    assert (await read(pipes.stdout), await read(pipes.stderr)) == (b"out\n", b"err\n")


async def test_the_exit_status_comes_back_while_input_is_open(pipes: Pipes) -> None:
    assert (await run(pipes.ends, "exit", "7")).exit_code == 7
    pipes.close_input()


async def test_input_may_be_a_file(pipes: Pipes, tmp_path: Path) -> None:
    pipes.close_input()
    (tmp_path / "in").write_bytes(b"x" * 100_000)
    fd = os.open(tmp_path / "in", os.O_RDONLY)
    async with running(Descriptors(fd, pipes.ends.stdout, pipes.ends.stderr), "cat") as ended:
        seen = 0
        while seen < 100_000:
            seen += len(await read(pipes.stdout))
    os.close(fd)
    assert ended[0].exit_code == 0


async def test_without_input_the_command_sees_its_end_at_once(pipes: Pipes) -> None:
    pipes.close_input()
    assert (await run(Descriptors(None, pipes.ends.stdout, pipes.ends.stderr), "cat")).exit_code == 0


async def test_without_a_terminal_ctrl_c_is_a_signal_there(pipes: Pipes) -> None:
    pipes.close_input()
    before = _handler()
    async with running(pipes.ends, "signal"):
        await eventually(lambda: _handler() != before)
        os.kill(os.getpid(), SIGINT)
        assert await read(pipes.stdout) == b"signal 2\n"
    assert _handler() == before


async def test_a_second_ctrl_c_leaves_a_command_that_takes_no_notice(pipes: Pipes) -> None:
    before = _handler()
    with pytest.raises(BaseExceptionGroup) as caught:
        async with running(pipes.ends, "deaf"):
            await eventually(lambda: _handler() != before)
            os.kill(os.getpid(), SIGINT)
            assert await read(pipes.stdout) == b"signal 2\n"
            os.kill(os.getpid(), SIGINT)
    error = sole_error(caught.value)
    assert isinstance(error, Failure)
    assert error.status == ExitStatus.INTERRUPTED
    pipes.close_input()


async def test_output_may_be_a_file(pipes: Pipes, tmp_path: Path) -> None:
    pipes.close_input()
    (tmp_path / "in").write_bytes(b"x" * 100_000)
    with (tmp_path / "in").open("rb") as given, (tmp_path / "out").open("wb") as taken:
        await run(Descriptors(given.fileno(), taken.fileno(), pipes.ends.stderr), "cat")
    assert (tmp_path / "out").read_bytes() == b"x" * 100_000


async def left_by_ctrl_c(ends: Descriptors, *command: str) -> None:
    """The second one leaves the command, also while nothing goes on."""
    before = _handler()
    with pytest.raises(BaseExceptionGroup) as caught, anyio.fail_after(LONG_S):
        async with running(ends, *command):
            await eventually(lambda: _handler() != before)
            await anyio.wait_all_tasks_blocked()
            for _ in range(2):
                os.kill(os.getpid(), SIGINT)
                await anyio.wait_all_tasks_blocked()
    error = sole_error(caught.value)
    assert isinstance(error, Failure) and error.status == ExitStatus.INTERRUPTED


async def test_ctrl_c_works_while_nobody_reads_the_output(pipes: Pipes, tmp_path: Path) -> None:
    pipes.close_input()
    (tmp_path / "in").write_bytes(b"x" * 2_000_000)
    with (tmp_path / "in").open("rb") as given:
        await left_by_ctrl_c(Descriptors(given.fileno(), pipes.ends.stdout, pipes.ends.stderr), "cat")
    assert os.read(pipes.stdout, 100_000).strip(b"x") == b""


async def test_ctrl_c_works_while_the_command_takes_no_input(pipes: Pipes, tmp_path: Path) -> None:
    pipes.close_input()
    (tmp_path / "in").write_bytes(b"x" * 2_000_000)
    with (tmp_path / "in").open("rb") as given:
        await left_by_ctrl_c(Descriptors(given.fileno(), pipes.ends.stdout, pipes.ends.stderr), "busy")


async def test_a_node_that_goes_away_is_an_error(pipes: Pipes) -> None:
    pipes.close_input()
    with pytest.raises((Unavailable, BaseExceptionGroup)):
        await run(pipes.ends, "lost")


async def test_a_new_size_of_the_window_is_passed_on() -> None:
    with terminal() as (person, own):
        async with running(Descriptors(own, own, own), "size", tty=True) as ended:
            with raw_mode(own):
                assert await read(person) == b"24x80\n"
                termios.tcsetwinsize(own, (50, 132))
                os.kill(os.getpid(), SIGWINCH)
                assert await read(person) == b"50x132\n"
                os.write(person, b"\x04")
                await eventually(lambda: bool(ended))


async def test_in_raw_mode_every_key_reaches_the_command() -> None:
    with terminal() as (person, own), raw_mode(own):
        async with running(Descriptors(own, own, own), "cat", tty=True) as ended:
            os.write(person, b"\x03\x1a\r")
            assert await read(person) == b"\x03\x1a\r"
            os.write(person, b"\x04")
            await eventually(lambda: bool(ended))


def test_a_terminal_is_put_back_whatever_happens() -> None:
    with terminal() as (_, own):
        before = termios.tcgetattr(own)
        with pytest.raises(KeyboardInterrupt), raw_mode(own):
            assert termios.tcgetattr(own) != before
            raise KeyboardInterrupt
        assert termios.tcgetattr(own) == before


def test_a_window_has_rows_and_columns() -> None:
    with terminal(33, 44) as (_, own):
        assert window(own) == (33, 44)


def test_a_person_sits_at_both_ends_or_there_is_no_terminal(pipes: Pipes) -> None:
    with terminal() as (_, own):
        assert is_terminal(Descriptors(own, own, pipes.ends.stderr))
        assert not is_terminal(Descriptors(pipes.ends.stdin, own, own))
        assert not is_terminal(Descriptors(own, pipes.ends.stdout, own))
        assert not is_terminal(Descriptors(None, own, own))
    pipes.close_input()


def test_own_descriptors_may_leave_out_the_input() -> None:
    ends = own_descriptors(stdin=False)
    assert ends.stdin is None
    assert (ends.stdout, ends.stderr) == (sys.stdout.fileno(), sys.stderr.fileno())


def _handler() -> object:
    return getsignal(SIGINT)
