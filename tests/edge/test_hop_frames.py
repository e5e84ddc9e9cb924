"""The words of hops are short, and those of another version are read."""

import msgspec

from hawker.edge.hop_frames import FIRST_BYTES, MAX_WORD_BYTES, HopAnswer, HopFrame, HopQuestion, read_word, word
from hawker.ids import AppName, MachineId


def test_answers_are_short() -> None:
    assert len(word(HopFrame.ANSWER, HopAnswer(let_in=False, code="PR01", why="w" * 1000))) < 4096


def test_questions_with_first_bytes_are_short() -> None:
    question = HopQuestion(app=AppName("a" * 63), machine=MachineId("m" * 32), service=9, first=bytes(FIRST_BYTES))
    assert len(word(HopFrame.QUESTION, question)) <= MAX_WORD_BYTES


def test_words_of_another_version_are_read() -> None:
    """A later one says more, an earlier one says less."""
    later = msgspec.msgpack.encode({"let_in": True, "keeps": True, "of_tomorrow": [1]})
    assert read_word(later, HopAnswer) == HopAnswer(let_in=True, keeps=True)
    assert not read_word(msgspec.msgpack.encode({"let_in": True, "code": "", "why": ""}), HopAnswer).keeps
