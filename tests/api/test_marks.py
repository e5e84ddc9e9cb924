"""Headers of our own: what they may hold, and that nobody can put more into them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.api.marks import MAX_CALLER, Marks, place_of, read_name, written_name
from hawker.errors import BadRequest


def test_marks_that_say_nothing_are_no_headers() -> None:
    assert Marks().headers() == []


def test_each_mark_is_a_header() -> None:
    marks = Marks()
    marks.version, marks.missing_regions = "0123abcd:2:7", ("mad", "far\r\naway")
    assert marks.headers() == [
        (b"hawker-version", b"0123abcd:2:7"),
        (b"hawker-missing-regions", b"mad, far%0D%0Aaway"),
    ]


def test_marks_are_heard_as_they_were_sent() -> None:
    sent, heard = Marks(), Marks()
    sent.version, sent.missing_regions = "5888b352:7:3", ("mad", "a, b")
    heard.hear({name.decode(): value.decode() for name, value in sent.headers()})
    assert (heard.version, heard.missing_regions) == (sent.version, sent.missing_regions)


def test_a_place_is_read_as_it_was_given_out() -> None:
    assert place_of("0123abcd:2:7") == "0123abcd:2:7"
    assert place_of(None) is None and place_of("") is None


@pytest.mark.parametrize(
    "text", ["x", "0123abcd:2", "0123ABCD:2:7", "0123abcd:-1:7", "0123abcd:2:7 ", "0123abcd:2:" + "9" * 40]
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        place_of(text)


@given(st.text())
def test_any_name_travels_in_a_header_and_is_bounded(name: str) -> None:
    written = written_name(name.encode(errors="replace").decode())
    assert written.isascii() and written.isprintable()
    assert read_name(written) == name.encode(errors="replace").decode()[:MAX_CALLER]


def test_a_hostile_name_is_cut() -> None:
    assert len(read_name("%41" * 100_000)) == MAX_CALLER
