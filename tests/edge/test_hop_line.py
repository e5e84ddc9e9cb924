"""What goes over a connection between two edges, however its bytes are cut."""

import asyncio
from unittest.mock import Mock

from hypothesis import given
from hypothesis import strategies as st

from hawker.edge.hop_line import HopAnswer, HopFrame, HopLine, HopQuestion, frame, read_word, word
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


def test_answers_are_short() -> None:
    assert len(word(HopFrame.ANSWER, HopAnswer(let_in=False, code="PR01", why="w" * 1000))) < 4096
