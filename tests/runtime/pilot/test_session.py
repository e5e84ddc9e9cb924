"""A session whose pilot lies, leaves or floods. What a good one does is in the drivers' contract suite."""

from functools import partial
from pathlib import Path

import anyio
import pytest

from hawker.errors import Unavailable
from hawker.runtime.driver import ExecSpec
from hawker.runtime.pilot import frames, messages
from hawker.runtime.pilot.channel import connect
from hawker.runtime.pilot.frames import FrameKind
from hawker.runtime.pilot.rundir import RunDir
from hawker.runtime.pilot.session import PilotSession
from tests.runtime.pilot.liar import DEADLINE_S, HELLO, pilot
from tests.runtime.pilot.records import ending

TRUE = partial(messages.exec_request, spec=ExecSpec(argv=("true",)))

pytestmark = pytest.mark.anyio


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


async def test_a_session_that_loses_contact_says_so(run: RunDir) -> None:
    with pilot(run, HELLO, frames.encode(FrameKind.STDOUT, 1, b"half")), anyio.fail_after(DEADLINE_S):
        session = PilotSession(connect(run), TRUE)
        assert [piece async for piece in session.output()] == [(1, b"half")]
        with pytest.raises(Unavailable):
            await session.wait()
        await session.send(b"into the void")


async def test_a_refused_session_tells_why(run: RunDir) -> None:
    refused = frames.encode(FrameKind.REFUSED, 1, frames.string("the machine is not running"))
    with pilot(run, HELLO, refused, hold=True), anyio.fail_after(DEADLINE_S):
        session = PilotSession(connect(run), TRUE)
        with pytest.raises(Unavailable, match="not running"):
            await session.wait()
        await session.close()


async def test_a_pilot_that_floods_beyond_the_credit_is_cut_off(run: RunDir) -> None:
    flood = frames.encode(FrameKind.STDOUT, 1, bytes(60_000)) * 6
    with pilot(run, HELLO, flood, hold=True), anyio.fail_after(DEADLINE_S):
        connection = connect(run)
        session = PilotSession(connection, TRUE)
        with pytest.raises(Unavailable, match="asked for"):
            while True:
                await connection.take()
        await session.close()


async def test_the_end_that_was_said_before_the_connection_broke_is_heard(run: RunDir) -> None:
    ending = frames.number(0, 8) + frames.number(3, 4) + frames.number(0, 4) + b"\0" + frames.string("")
    answers = (frames.encode(FrameKind.STDOUT, 1, b"last words"), frames.encode(FrameKind.EXIT, 1, ending))
    with pilot(run, HELLO, *answers), anyio.fail_after(DEADLINE_S):
        session = PilotSession(connect(run), TRUE)
        assert [piece async for piece in session.output()] == [(1, b"last words")]
        assert (await session.wait()).exit_code == 3


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (frames.encode(FrameKind.STDOUT, 1), "means nothing"),
        (frames.encode(FrameKind.STATE, 1, bytes(19)), "means nothing"),
        (frames.encode(FrameKind.CREDIT, 1, frames.number(1, 4)), "more input"),
        (frames.encode(FrameKind.CREDIT, 1, frames.number(0, 4)), "more input"),
        (frames.encode(FrameKind.CREDIT, 1, frames.number(2**32 - 1, 4)), "more input"),
        (frames.encode(FrameKind.EXIT, 1, ending(2**32 - 1)), "an end with code"),
        (frames.encode(FrameKind.REFUSED, 1, b"\1"), "ends too soon"),
    ],
)
async def test_a_pilot_that_talks_nonsense_is_cut_off(run: RunDir, frame: bytes, why: str) -> None:
    with pilot(run, HELLO, frame * 2000, hold=True), anyio.fail_after(DEADLINE_S):
        session = PilotSession(connect(run), TRUE)
        with pytest.raises(Unavailable, match=why):
            await session.wait()
        await session.close()
