"""A byte stream: nothing written is lost when it is closed, nothing said is lost when the other end breaks."""

import socket

import anyio
import pytest

from hawker.runtime.pilot.stream import ByteStream
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


class Listener:
    def __init__(self) -> None:
        self.heard = b""
        self.ends = 0

    def data(self, data: bytes) -> None:
        self.heard += data

    def end(self, why: str) -> None:
        self.ends += 1


def joined() -> tuple[ByteStream, socket.socket, Listener]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    listener = Listener()
    return ByteStream(ours, listener.data, listener.end), theirs, listener


async def test_what_the_other_end_said_before_it_left_is_heard_although_writing_fails() -> None:
    stream, theirs, listener = joined()
    theirs.send(b"last words")
    theirs.close()
    stream.write(b"into the void")
    await eventually(lambda: listener.ends)
    assert (listener.heard, listener.ends) == (b"last words", 1)


async def test_closing_delivers_what_was_written(anyio_backend: str) -> None:
    stream, theirs, listener = joined()
    sent = bytes(range(256)) * 8000  # more than a socket holds
    stream.write(sent)
    stream.close()
    got = b""
    while len(got) < len(sent):
        await anyio.wait_readable(theirs)
        got += theirs.recv(1 << 20)
    assert got == sent
    await anyio.wait_readable(theirs)
    assert theirs.recv(1) == b"" and listener.ends == 0
    theirs.close()


async def test_aborting_closes_at_once() -> None:
    stream, theirs, listener = joined()
    stream.abort()
    stream.abort()
    stream.write(b"too late")
    assert theirs.recv(10) == b"" and listener.ends == 0
    theirs.close()
