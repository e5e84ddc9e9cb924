"""A byte stream: nothing written is lost when it is closed, nothing said is lost when the other end breaks."""

import socket
from pathlib import Path

import anyio
import pytest

from hawker.errors import Unavailable
from hawker.ids import InstanceId
from hawker.runtime.pilot import frames, requests
from hawker.runtime.pilot.channel import connect, pilot_pid
from hawker.runtime.pilot.connection import ByteStream, Inbox
from hawker.runtime.pilot.frames import FrameKind
from hawker.runtime.pilot.requests import PilotStartAnswer
from hawker.runtime.pilot.rundir import RunDir
from tests.runtime.pilot.liar import DEADLINE_S, HELLO, hello, pilot
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


async def test_last_words_of_the_other_end_are_heard_although_writing_fails() -> None:
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


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    deep = tmp_path / ("d" * 120)  # longer than a socket's address
    deep.mkdir()
    return RunDir(deep)


async def test_hello_tells_what_runs(run: RunDir) -> None:
    with pilot(run, HELLO), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            said = await connection.hello()
    assert (said.instance_id, said.version) == ("instance", 1)


async def test_frames_that_only_a_newer_pilot_knows_are_passed_over(run: RunDir) -> None:
    newer = frames.number(200, 1)
    unknown = frames.number(5 + 4, 4) + newer + frames.number(0, 4) + b"more"
    with pilot(run, HELLO, unknown, frames.encode(FrameKind.READY)), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            requests.send_spec(connection, b"")
            assert await requests.started(connection, InstanceId("instance")) is PilotStartAnswer.READY


async def test_nobody_listening_is_unavailable(run: RunDir) -> None:
    with pytest.raises(Unavailable, match="does not answer"):
        connect(run)
    assert pilot_pid(run) is None


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="silence"),
        pytest.param(b"\xff" * 20, id="no frames"),
        pytest.param(HELLO[:7], id="half a hello"),
        pytest.param(frames.encode(FrameKind.READY), id="another frame first"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="another protocol"),
    ],
)
async def test_whoever_is_no_pilot_is_unavailable(run: RunDir, answer: bytes) -> None:
    with pilot(run, answer), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            with pytest.raises(Unavailable):
                await connection.hello()


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(frames.encode(FrameKind.STATE, 77), id="for nobody"),
        pytest.param(b"\x05\0\0\0\xfa\0\0\0\0", id="of an unknown type"),
        pytest.param(frames.encode(FrameKind.READY), id="that nobody takes"),
    ],
)
async def test_a_flood_of_frames_is_cut_off(run: RunDir, frame: bytes) -> None:
    with pilot(run, HELLO, frame * 5000, hold=True), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            inbox = Inbox()
            connection.open_channel(inbox)
            with pytest.raises(Unavailable, match="makes no sense"):
                await inbox.take()


async def test_a_trickle_of_large_frames_is_held_only_to_a_bound(run: RunDir) -> None:
    large = frames.encode(FrameKind.STDOUT, 0, bytes(frames.PAYLOAD_MAX))
    with pilot(run, HELLO, large * 20, hold=True), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            inbox = Inbox()
            connection.open_channel(inbox)
            with pytest.raises(Unavailable, match="asked for"):
                await inbox.take()


@pytest.mark.parametrize("version", [0, frames.VERSION, 65535])
async def test_the_lower_of_two_versions_is_spoken(run: RunDir, version: int) -> None:
    with pilot(run, hello(version)), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            if version == 0:
                with pytest.raises(Unavailable, match="speaks version 0"):
                    await connection.hello()
            else:
                await connection.hello()
                assert connection.version == frames.VERSION
