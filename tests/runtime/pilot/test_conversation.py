"""What a pilot's answers mean."""

from pathlib import Path

import anyio
import pytest

from hawker.errors import Conflict, Unavailable
from hawker.ids import InstanceId
from hawker.runtime.pilot import conversation, frames
from hawker.runtime.pilot.connection import connect
from hawker.runtime.pilot.conversation import Answer
from hawker.runtime.pilot.frames import Kind
from hawker.runtime.pilot.rundir import RunDir
from tests.runtime.pilot.liar import DEADLINE_S, HELLO, pilot

INSTANCE = InstanceId("instance")

pytestmark = pytest.mark.anyio


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


@pytest.mark.parametrize(
    ("answer", "meaning"),
    [
        (frames.encode(Kind.READY), Answer.READY),
        (frames.encode(Kind.EXIT), Answer.ENDED),
        (b"", Answer.ENDED),
        (b"\x06\0\0\0\xfa\0\0\0\0\1" + frames.encode(Kind.READY), Answer.READY),
    ],
    ids=["ready", "exit", "gone", "unknown frames are passed over"],
)
async def test_the_answer_to_a_spec(run: RunDir, answer: bytes, meaning: Answer) -> None:
    with pilot(run, HELLO, answer), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            assert await conversation.started(connection, INSTANCE) is meaning


async def test_a_refused_spec_is_a_conflict(run: RunDir) -> None:
    refused = frames.encode(Kind.REFUSED, 0, frames.string("another runs here"))
    with pilot(run, HELLO, refused), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            with pytest.raises(Conflict, match="another runs here"):
                await conversation.started(connection, INSTANCE)


async def test_an_endless_list_is_cut_off(run: RunDir) -> None:
    process = frames.encode(Kind.PROCESS, 1, bytes(40))
    with pilot(run, HELLO, process * 5000), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            with pytest.raises(Unavailable):
                await conversation.list_processes(connection)
