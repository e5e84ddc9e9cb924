"""What a guest is asked, and guests that refuse, lie, or say nothing."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.errors import Unavailable, WrongState
from hawker.runtime.driver import VolumeUsage
from hawker.runtime.pilot import frames, requests
from hawker.runtime.pilot.channel import connect
from hawker.runtime.pilot.connection import Connection
from hawker.runtime.pilot.frames import Frame, FrameKind, MalformedPilotFrame, PayloadReader
from hawker.runtime.pilot.requests import GuestMemory, freeze, read_memory, read_usage
from hawker.runtime.pilot.rundir import RunDir
from tests.runtime.pilot.liar import answering

pytestmark = pytest.mark.anyio
QUESTIONS = [
    partial(requests.set_clock, now=1.5),
    partial(requests.grow, target="/data"),
    partial(requests.trim, target="/data", start=0, count=1),
    partial(requests.memory),
    partial(requests.usage, target="/data"),
]


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[RunDir]:
    with anyio.fail_after(120):
        yield RunDir(tmp_path)


def numbers(*values: int) -> bytes:
    return b"".join(frames.number(value, 8) for value in values)


class Guest:
    """Notes what it is asked, and answers each kind as it is told to; with DONE where it is told nothing."""

    def __init__(self, **answers: tuple[FrameKind, bytes] | None) -> None:
        self.asked: list[tuple[int, bytes]] = []
        self._answers = {FrameKind[name]: answer for name, answer in answers.items()}

    def __call__(self, frame: Frame) -> bytes:
        self.asked.append((frame.kind, frame.payload))
        answer = self._answers.get(FrameKind(frame.kind), (FrameKind.DONE, frames.string("")))
        return b"" if answer is None else frames.encode(answer[0], frame.channel, answer[1])


async def greeted(run: RunDir) -> Connection:
    pilot = connect(run)
    await pilot.hello()
    return pilot


async def test_each_question_is_asked_as_the_protocol_has_it(run: RunDir) -> None:
    guest = Guest(
        MEMORY=(FrameKind.MEMORY_IS, numbers(9, 8, 7, 2, 1)), USAGE=(FrameKind.USAGE_IS, numbers(4096, 9, 3, 2))
    )
    target = frames.string("/data")
    with answering(run, guest):
        async with await greeted(run) as pilot:
            await requests.set_clock(pilot, 1.5)
            await requests.grow(pilot, "/data")
            await requests.trim(pilot, "/data", 5, 7)
            assert guest.asked[-1] == (FrameKind.TRIM, target + numbers(5, 7))
            told = await requests.memory(pilot), await requests.usage(pilot, "/data")
            async with freeze(pilot, "/data", 62.5):
                assert guest.asked[-1] == (FrameKind.FREEZE, target + frames.number(62_500, 4))
    assert told == (
        GuestMemory(total=9, available=8, free=7, swap_total=2, swap_free=1),
        VolumeUsage(block_size=4096, blocks=9, blocks_free=3, blocks_avail=2),
    )
    assert [kind for kind, _ in guest.asked] == [16, 19, 23, 20, 21, 17, 18]
    assert guest.asked[0][1] == numbers(1_500_000_000) and guest.asked[-1][1] == target


@pytest.mark.parametrize("ask", QUESTIONS)
@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        ((FrameKind.REFUSED, frames.string("not here")), WrongState, "not here"),
        ((FrameKind.REFUSED, b"\xff\xff\xff\xff"), Unavailable, "makes no sense"),
        ((FrameKind.DONE, frames.string("no \x1b[2Jspace")), Unavailable, r"no \\x1b|answer of type 42"),
        ((FrameKind.READY, b""), Unavailable, "makes no sense"),
        ((FrameKind.DONE, b""), Unavailable, "makes no sense"),
    ],
    ids=["refused", "refused without words", "not done", "another answer", "no words"],
)
async def test_a_request_not_done_says_why(
    run: RunDir,
    ask: Callable[[Connection], object],
    answer: tuple[FrameKind, bytes],
    error: type[Exception],
    why: str,
) -> None:
    guest = Guest(CLOCK=answer, GROW=answer, TRIM=answer, MEMORY=answer, USAGE=answer)
    with answering(run, guest):
        async with await greeted(run) as pilot:
            with pytest.raises(error, match=why):
                await ask(pilot)  # type: ignore[misc]


@pytest.mark.parametrize(("version", "ask"), [(2, QUESTIONS[1]), (4, QUESTIONS[2])], ids=["grow", "trim"])
async def test_an_older_pilot_is_not_asked(run: RunDir, version: int, ask: Callable[[Connection], object]) -> None:
    guest = Guest()
    with answering(run, guest, version=version):
        async with await greeted(run) as pilot:
            with pytest.raises(WrongState, match="older version"):
                await ask(pilot)  # type: ignore[misc]
    assert guest.asked == []


async def test_a_freeze_let_go_too_early_was_not_held(run: RunDir) -> None:
    with answering(run, Guest(THAW=(FrameKind.DONE, frames.string("it was let go")))):
        async with await greeted(run) as pilot:
            with pytest.raises(Unavailable, match="let go"):
                async with freeze(pilot, "/data", 60):
                    pass


async def test_a_block_that_took_too_long_is_not_believed_to_have_been_held(run: RunDir) -> None:
    with answering(run, Guest()):
        async with await greeted(run) as pilot:
            with pytest.raises(Unavailable, match="as long as it was needed"):
                async with freeze(pilot, "/data", 1.5):
                    with anyio.move_on_after(1.6):
                        await anyio.sleep_forever()


async def test_a_guest_that_neither_holds_nor_lets_go_keeps_nobody(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "THAW_TIMEOUT_S", 0.05)
    with answering(run, Guest(THAW=None)):
        async with await greeted(run) as pilot:
            with pytest.raises(Unavailable, match="does not say whether"):
                async with freeze(pilot, "/data", 60):
                    pass
            with pytest.raises(ZeroDivisionError):  # the block's own error is the one that counts
                async with freeze(pilot, "/data", 60):
                    raise ZeroDivisionError


async def test_a_guest_that_does_not_come_to_a_halt_is_given_up(run: RunDir) -> None:
    guest = Guest(FREEZE=None)
    with answering(run, guest):
        async with await greeted(run) as pilot:
            with pytest.raises(Unavailable, match="did not hold /data still"):
                async with freeze(pilot, "/data", 0.1):
                    raise AssertionError("never held")


async def test_a_caller_cancelled_within_lets_go(run: RunDir) -> None:
    guest = Guest()
    with answering(run, guest):
        async with await greeted(run) as pilot:
            with anyio.CancelScope() as scope:
                async with freeze(pilot, "/data", 60):
                    scope.cancel()
                    await anyio.sleep_forever()
            assert guest.asked[-1][0] == FrameKind.THAW


@pytest.mark.parametrize(
    ("read", "payload"),
    [
        (read_memory, numbers(1, 2, 0, 0, 0)),
        (read_memory, numbers(1, 0, 2, 0, 0)),
        (read_memory, numbers(1, 0, 0, 1, 2)),
        (read_memory, numbers(2**64 - 1, 0, 0, 0, 0)),
        (read_memory, numbers(2**63, 0, 0, 2**63, 0)),
        (read_usage, numbers(0, 1, 1, 1)),
        (read_usage, numbers(2**63, 1, 1, 1)),
        (read_usage, numbers(4096, 2**63, 1, 1)),
        (read_usage, numbers(4096, 5, 6, 1)),
        (read_usage, numbers(4096, 5, 5, 6)),
    ],
)
def test_numbers_that_cannot_be_are_malformed(read: Callable[[PayloadReader], object], payload: bytes) -> None:
    with pytest.raises(MalformedPilotFrame, match="than there is"):
        read(PayloadReader(payload))


@given(st.binary(max_size=48))
def test_any_bytes_are_malformed_or_sober(data: bytes) -> None:
    for read in (read_memory, read_usage):
        try:
            told = read(PayloadReader(data))
        except MalformedPilotFrame:
            continue
        if isinstance(told, GuestMemory):
            assert told.available <= told.total < 2**64
        else:
            assert told.blocks_avail <= told.blocks
