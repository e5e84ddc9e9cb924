"""What a pilot's answers mean."""

from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import pytest

from hawker.errors import Conflict, Unavailable
from hawker.ids import InstanceId
from hawker.runtime.pilot import frames, requests
from hawker.runtime.pilot.channel import connect
from hawker.runtime.pilot.frames import FrameKind
from hawker.runtime.pilot.requests import PilotStartAnswer
from hawker.runtime.pilot.rundir import RunDir
from tests.runtime.pilot.liar import DEADLINE_S, HELLO, answering, pilot

INSTANCE = InstanceId("instance")

pytestmark = pytest.mark.anyio


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


@pytest.mark.parametrize(
    ("answer", "meaning"),
    [
        (frames.encode(FrameKind.READY), PilotStartAnswer.READY),
        (frames.encode(FrameKind.EXIT), PilotStartAnswer.ENDED),
        (b"", PilotStartAnswer.ENDED),
        (b"\x06\0\0\0\xfa\0\0\0\0\1" + frames.encode(FrameKind.READY), PilotStartAnswer.READY),
    ],
    ids=["ready", "exit", "gone", "unknown frames are passed over"],
)
async def test_the_answer_to_a_spec(run: RunDir, answer: bytes, meaning: PilotStartAnswer) -> None:
    with pilot(run, HELLO, answer), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            assert await requests.started(connection, INSTANCE) is meaning


async def test_a_refused_spec_is_a_conflict(run: RunDir) -> None:
    refused = frames.encode(FrameKind.REFUSED, 0, frames.string("another runs here"))
    with pilot(run, HELLO, refused), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            with pytest.raises(Conflict, match="another runs here"):
                await requests.started(connection, INSTANCE)


async def test_an_endless_list_is_cut_off(run: RunDir) -> None:
    process = frames.encode(FrameKind.PROCESS, 1, bytes(40))
    with pilot(run, HELLO, process * 5000), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            with pytest.raises(Unavailable):
                await requests.list_processes(connection)


async def test_a_pilot_that_only_ever_says_something_else_does_not_start(run: RunDir) -> None:
    with answering(run, lambda _: frames.encode(FrameKind.LIST_END)), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:

            async def ask() -> None:
                while True:
                    connection.send(frames.encode(FrameKind.LIST, 1))
                    await anyio.lowlevel.checkpoint()

            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                assert await requests.started(connection, INSTANCE) is PilotStartAnswer.ENDED
                group.cancel_scope.cancel()


async def test_a_refusal_without_a_reason_is_unavailable(run: RunDir) -> None:
    with pilot(run, HELLO, frames.encode(FrameKind.REFUSED, 0, b"\xff")), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            with pytest.raises(Unavailable, match="makes no sense"):
                await requests.started(connection, INSTANCE)


async def test_a_list_in_small_parts_is_cut_off_too(run: RunDir) -> None:
    part = frames.encode(FrameKind.PROCESS, 1, bytes(28) + frames.string("x") * 2 + frames.strings(())) * 300
    with answering(run, lambda _: part), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:

            async def more() -> None:
                while True:
                    connection.send(frames.encode(FrameKind.SIGNAL, 1))
                    await anyio.lowlevel.checkpoint()

            async with anyio.create_task_group() as group:
                group.start_soon(more)
                with pytest.raises(Unavailable):
                    await requests.list_processes(connection)
                group.cancel_scope.cancel()


async def test_a_process_with_absurd_numbers_is_only_odd(run: RunDir) -> None:
    odd = b"\xff" * 28 + frames.string("\x1b") + frames.string("") + frames.strings(("", "tcp", "x y z"))
    answers = frames.encode(FrameKind.PROCESS, 1, odd) + frames.encode(FrameKind.LIST_END, 1)
    with answering(run, lambda _: answers), anyio.fail_after(DEADLINE_S):
        async with connect(run) as connection:
            (process,) = await requests.list_processes(connection)
    datetime.fromtimestamp(process.started_at, UTC)
    assert len(process.sockets) == 3 and msgspec.json.encode(process)
