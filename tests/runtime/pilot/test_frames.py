"""Frames and fields: what was encoded comes back however it is cut; hostile bytes give `MalformedPilotFrame` alone."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.runtime.pilot import frames
from hawker.runtime.pilot.frames import Frame, FrameKind, FrameParser, MalformedPilotFrame, PayloadReader

FRAMES = st.lists(
    st.builds(
        Frame,
        kind=st.sampled_from(list(FrameKind)),
        channel=st.integers(0, 2**32 - 1),
        payload=st.binary(max_size=300),
    ),
    max_size=8,
)


@given(FRAMES, st.integers(1, 40))
def test_frames_survive_being_cut_anywhere(sent: list[Frame], size: int) -> None:
    stream = b"".join(frames.encode(FrameKind(frame.kind), frame.channel, frame.payload) for frame in sent)
    parser = FrameParser()
    got = [frame for at in range(0, len(stream), size) for frame in parser.feed(stream[at : at + size])]
    assert got == sent


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_hostile_bytes_are_malformed_or_harmless(pieces: list[bytes]) -> None:
    parser = FrameParser()
    with contextlib.suppress(MalformedPilotFrame):
        for piece in pieces:
            for frame in parser.feed(piece):
                assert len(frame.payload) <= frames.PAYLOAD_MAX


@pytest.mark.parametrize("length", [0, 4, frames.FRAME_MAX + 1, 2**32 - 1])
def test_a_length_out_of_bounds_is_malformed_at_once(length: int) -> None:
    with pytest.raises(MalformedPilotFrame):
        list(FrameParser().feed(length.to_bytes(4, "little")))


def test_the_largest_frame_passes() -> None:
    payload = bytes(frames.PAYLOAD_MAX)
    assert list(FrameParser().feed(frames.encode(FrameKind.STDIN, 1, payload))) == [Frame(FrameKind.STDIN, 1, payload)]


@given(st.lists(st.text(alphabet=st.characters(blacklist_characters="\0", codec="utf-8")), max_size=10))
def test_strings_come_back(texts: list[str]) -> None:
    assert PayloadReader(frames.strings(tuple(texts))).strings() == tuple(texts)


@given(st.binary(max_size=100))
def test_hostile_fields_are_malformed_or_values(data: bytes) -> None:
    for read in (PayloadReader.string, PayloadReader.strings, lambda reader: reader.number(8)):
        with contextlib.suppress(MalformedPilotFrame):
            read(PayloadReader(data))


def test_a_list_that_lies_about_its_length_is_malformed() -> None:
    with pytest.raises(MalformedPilotFrame):
        PayloadReader(frames.number(2**31, 4)).strings()


def test_bytes_that_are_no_text_are_kept_as_escapes() -> None:
    assert PayloadReader(frames.blob(b"\xff") + b"\0").string() == "\\xff"
