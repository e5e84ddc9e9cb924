"""A connection to a pilot that behaves, and to ones that do not."""

from pathlib import Path

import anyio
import pytest

from hawker.errors import Unavailable
from hawker.ids import InstanceId
from hawker.runtime.pilot import conversation, frames
from hawker.runtime.pilot.connection import connect, pilot_pid
from hawker.runtime.pilot.conversation import Answer
from hawker.runtime.pilot.frames import Kind
from hawker.runtime.pilot.rundir import RunDir
from tests.runtime.pilot.liar import DEADLINE_S, HELLO, pilot

pytestmark = pytest.mark.anyio


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    deep = tmp_path / ("d" * 120)  # longer than a socket's address
    deep.mkdir()
    return RunDir(deep)


async def test_hello_tells_what_runs(run: RunDir) -> None:
    with pilot(run, HELLO), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            hello = await connection.hello()
    assert (hello.instance_id, hello.version) == ("instance", 1)


async def test_frames_that_only_a_newer_pilot_knows_are_passed_over(run: RunDir) -> None:
    newer = frames.number(200, 1)
    unknown = frames.number(5 + 4, 4) + newer + frames.number(0, 4) + b"more"
    with pilot(run, HELLO, unknown, frames.encode(Kind.READY)), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            conversation.send_spec(connection, b"")
            assert await conversation.started(connection, InstanceId("instance")) is Answer.READY


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
        pytest.param(frames.encode(Kind.READY), id="another frame first"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="another protocol"),
    ],
)
async def test_whoever_is_no_pilot_is_unavailable(run: RunDir, answer: bytes) -> None:
    with pilot(run, answer), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            with pytest.raises(Unavailable):
                await connection.hello()
