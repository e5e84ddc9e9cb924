"""The caller's own end of a conversation with a command in a machine: its terminal, or its three streams.

A terminal is put into raw mode, so that every key reaches the command, and put back whatever happens.
"""

import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from select import PIPE_BUF

import anyio

from hawker.api.contract.body import Failed
from hawker.api.contract.exec import Exited, Input, InputEnd, Output, Resize, SendSignal, TerminalInput, TerminalOutput
from hawker.api.failure import error_of
from hawker.api.handlers import SocketChannel
from hawker.cli.exits import ExitStatus, Failure
from hawker.errors import Unavailable, one_error
from hawker.value_object import ValueObject

_CHUNK_BYTES = 32 * 1024
_STDERR = 2


class Descriptors(ValueObject, frozen=True):
    """`stdin` None: the command gets no input."""

    stdin: int | None
    stdout: int
    """Of a file of this process."""
    stderr: int
    """Of a file of this process."""


def own_descriptors(*, stdin: bool) -> Descriptors:
    given = sys.__stdin__ if stdin else None  # a service may be started without one
    return Descriptors(given.fileno() if given else None, sys.stdout.fileno(), sys.stderr.fileno())


def is_terminal(descriptors: Descriptors) -> bool:
    """Whether a person sits at both ends."""
    return descriptors.stdin is not None and os.isatty(descriptors.stdin) and os.isatty(descriptors.stdout)


def window(fd: int) -> tuple[int, int]:
    """Rows and columns."""
    size = os.get_terminal_size(fd)
    return size.lines, size.columns


@contextmanager
def raw_mode(fd: int) -> Iterator[None]:
    before = termios.tcgetattr(fd)
    try:
        tty.setraw(fd, termios.TCSADRAIN)  # what was typed ahead is kept
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


async def converse(
    channel: SocketChannel[TerminalInput, TerminalOutput], ends: Descriptors, *, terminal: bool
) -> Exited:
    """Pass everything on in both directions until the command has ended. Raises the node's error as it is."""
    with one_error():
        async with anyio.create_task_group() as tasks:
            if terminal:
                tasks.start_soon(_pass_resizes, channel, ends.stdout)
            else:
                tasks.start_soon(_pass_signals, channel)
            tasks.start_soon(_pass_input, channel, ends.stdin)
            exited = await _pass_output(channel, ends)
            tasks.cancel_scope.cancel()
    return exited


async def _pass_output(channel: SocketChannel[TerminalInput, TerminalOutput], ends: Descriptors) -> Exited:
    while (message := await channel.receive()) is not None:
        match message:
            case Output():
                await _write(ends.stderr if message.stream == _STDERR else ends.stdout, message.data)
            case Exited():
                return message
            case Failed():
                raise error_of(message.http_status, message.problem)
    raise Unavailable("the connection to the node was lost before the command ended")


async def _pass_input(channel: SocketChannel[TerminalInput, TerminalOutput], fd: int | None) -> None:
    while fd is not None and (data := await _read(fd)):
        await _send(channel, Input(data=data))
    await _send(channel, InputEnd())


async def _pass_resizes(channel: SocketChannel[TerminalInput, TerminalOutput], fd: int) -> None:
    with anyio.open_signal_receiver(signal.SIGWINCH) as signals:
        async for _ in signals:
            rows, cols = window(fd)
            await _send(channel, Resize(rows=rows, cols=cols))


async def _pass_signals(channel: SocketChannel[TerminalInput, TerminalOutput]) -> None:
    """Without a terminal Ctrl-C is a signal here, and shall be one there. A second one is for this command."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with anyio.create_task_group() as sending:  # which waits while the command takes no input
            passed = False
            async for number in signals:
                if passed:
                    raise Failure("detached before the command ended", ExitStatus.INTERRUPTED)
                sending.start_soon(_send, channel, SendSignal(signal=int(number)))
                passed = True


async def _send(channel: SocketChannel[TerminalInput, TerminalOutput], message: TerminalInput) -> None:
    """What comes too late for a command that has ended is lost; how it ended is for its output to say."""
    with suppress(Unavailable):
        await channel.send(message)


async def _read(fd: int) -> bytes:
    """What there is to read; empty at the end, which a terminal that was hung up has reached too."""
    with suppress(PermissionError):  # a file: always readable, and not to be waited for
        await anyio.wait_readable(fd)
    try:
        return os.read(fd, _CHUNK_BYTES)
    except OSError:
        return b""


async def _write(fd: int, data: bytes) -> None:
    """At a time what a pipe takes that has room: who does not read holds up nothing else here."""
    while data:
        with suppress(PermissionError):  # a file: always writable, and not to be waited for
            await anyio.wait_writable(fd)
        data = data[os.write(fd, data[:PIPE_BUF]) :]
