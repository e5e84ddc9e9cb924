"""What goes over a connection between two edges, however its bytes are cut."""

import asyncio
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.edge.hop_frames import FIRST_BYTES, HopAnswer, HopFrame, HopQuestion, frame, read_word, word
from hawker.edge.hop_line import HopLine, HopStream
from hawker.ids import AppName, MachineId
from tests.waiting import eventually

names = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=60)


@given(names, names, st.integers(0, 100), st.floats(0, 60), st.booleans(), st.lists(st.integers(1, 40), max_size=20))
def test_a_question_is_read_however_it_comes(
    app: str, machine: str, service: int, hold_s: float, lasting: bool, cuts: list[int]
) -> None:
    question = HopQuestion(
        app=AppName(app), machine=MachineId(machine), service=service, hold_s=hold_s, lasting=lasting
    )
    heard: list[tuple[HopFrame, bytes]] = []
    line = HopLine(lambda kind, data: heard.append((kind, data)), lambda: None, lambda error: None)
    for piece in pieces(2 * word(HopFrame.QUESTION, question), cuts):
        line.data_received(piece)
    assert [(kind, read_word(data, HopQuestion)) for kind, data in heard] == [(HopFrame.QUESTION, question)] * 2


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    found, at = [], 0
    for cut in cuts:
        found.append(data[at : at + cut])
        at += cut
    return [*found, data[at:]]


async def test_a_machine_s_first_words_wait_for_a_listener() -> None:
    """It may come with the gate's answer, before whoever asked knows of that."""
    line, heard = HopLine(lambda kind, data: None, lambda: None, lambda error: None), Mock(spec=asyncio.Protocol)
    line.connection_made(Mock(spec=asyncio.Transport, get_extra_info=Mock(return_value=None)))
    line.data_received(word(HopFrame.ANSWER, HopAnswer(let_in=True)) + frame(HopFrame.DATA, b"220 ready"))
    line.open(heard)
    await eventually(lambda: heard.data_received.called)
    heard.data_received.assert_called_once_with(b"220 ready")


@pytest.mark.parametrize("size", [10, FIRST_BYTES + 1])
def test_first_bytes_go_with_the_question_or_wait_for_its_answer(size: int) -> None:
    line, transport = connected_line()
    stream = opened(line, Mock(spec=asyncio.Protocol), HopQuestion(app=AppName("a"), machine=MachineId("m"), service=0))
    stream.write(b"x" * size)
    (asked,) = words(transport)
    fits = size <= FIRST_BYTES
    assert read_word(asked[1], HopQuestion).first == (b"x" * size if fits else b"")
    line.data_received(word(HopFrame.ANSWER, HopAnswer(let_in=True, keeps=True)))
    stream.let_in()
    assert words(transport)[1:] == ([] if fits else [(HopFrame.DATA, b"x" * size)])


async def test_a_conversation_that_was_left_is_skipped_up_to_the_next_answer() -> None:
    freed, heard = Mock(), Mock()
    line, transport = connected_line(heard, freed)
    first, second = Mock(spec=asyncio.Protocol), Mock(spec=asyncio.Protocol)
    stream = opened(line, first)
    line.data_received(frame(HopFrame.DATA, b"answer"))
    stream.rest()
    freed.assert_called_once()
    opened(line, second, HopQuestion(app=AppName("a"), machine=MachineId("m"), service=0)).write(b"next")
    transport.write.assert_called_once()
    said = words(transport)
    assert [kind for kind, _ in said] == [HopFrame.REST, HopFrame.QUESTION] and said[0][1] == (6).to_bytes(8)
    late = frame(HopFrame.DATA, b"late") + frame(HopFrame.END) + frame(HopFrame.CLOSE)
    line.data_received(late + word(HopFrame.ANSWER, HopAnswer(let_in=True)))
    heard.assert_called_once()
    first.data_received.assert_called_once_with(b"answer")
    second.data_received.assert_not_called()
    transport.abort.assert_not_called()


@pytest.mark.parametrize(
    "said",
    [frame(HopFrame.DATA, b"unasked"), frame(HopFrame.CLOSE), frame(HopFrame.REST, bytes(8))],
    ids=["data", "close", "rest"],
)
async def test_a_frame_before_the_answer_that_is_of_no_conversation_before_ends_the_line(said: bytes) -> None:
    line, transport = connected_line()
    opened(line, Mock(spec=asyncio.Protocol), HopQuestion(app=AppName("a"), machine=MachineId("m"), service=0))
    line.data_received(said)
    transport.abort.assert_called_once()


async def test_a_conversation_with_a_gate_that_keeps_is_over_once_it_is_closed() -> None:
    freed, closed = Mock(), Mock(spec=asyncio.Protocol)
    line, transport = connected_line(freed=freed)
    line.keeps = True
    opened(line, closed).close()
    freed.assert_called_once()
    line.close()
    assert words(transport) == [(HopFrame.REST, b"\xff" * 8)], "as many as no gate has sent"
    await eventually(lambda: closed.connection_lost.called)
    closed.connection_lost.assert_called_once_with(None)


async def test_the_rest_of_a_conversation_that_was_left_is_bounded() -> None:
    line, transport = connected_line()
    opened(line, Mock(spec=asyncio.Protocol)).rest()
    for _ in range(5):
        line.data_received(frame(HopFrame.DATA, bytes(1 << 20)))
    transport.abort.assert_called_once()


def test_an_answer_that_may_wait_goes_with_what_is_said_next() -> None:
    line, transport = connected_line()
    line.say(HopFrame.ANSWER, HopAnswer(let_in=True), soon=True)
    transport.write.assert_not_called()
    line.send(HopFrame.DATA, b"hello")
    transport.write.assert_called_once()
    line.flush()
    assert [kind for kind, _ in words(transport)] == [HopFrame.ANSWER, HopFrame.DATA]


@pytest.mark.parametrize("why", [None, TimeoutError("its gate does not answer")])
async def test_a_conversation_over_a_line_that_was_lost_since_its_answer_is_lost(why: Exception | None) -> None:
    line, _ = connected_line()
    line.data_received(word(HopFrame.ANSWER, HopAnswer(let_in=True)) + frame(HopFrame.DATA, b"220 ready"))
    line.give_up(why)
    late = Mock(spec=asyncio.Protocol)
    stream = opened(line, late)
    late.connection_lost.assert_not_called()
    stream.write(b"hello")
    await eventually(lambda: late.connection_lost.called)
    ((error,),) = (call.args for call in late.connection_lost.call_args_list)
    assert isinstance(error, ConnectionResetError) if why is None else error is why
    late.data_received.assert_not_called()


def connected_line(heard: Mock | None = None, freed: Mock | None = None) -> tuple[HopLine, Mock]:
    line = HopLine(heard or Mock(), freed or Mock(), Mock())
    transport = Mock(spec=asyncio.Transport, get_extra_info=Mock(return_value=None))
    transport.is_closing.return_value = False
    transport.abort.side_effect = lambda: line.connection_lost(None)
    line.connection_made(transport)
    return line, transport


def opened(line: HopLine, protocol: Mock, question: HopQuestion | None = None) -> HopStream:
    line.open(protocol, question)
    stream = protocol.connection_made.call_args.args[0]
    assert isinstance(stream, HopStream)
    return stream


def words(transport: Mock) -> list[tuple[HopFrame, bytes]]:
    """What was written, by frames."""
    data, found = b"".join(call.args[0] for call in transport.write.call_args_list), []
    while data:
        end = 5 + int.from_bytes(data[1:5])
        found.append((HopFrame(data[0]), data[5:end]))
        data = data[end:]
    return found
