"""Serial ports: what is said comes through however it is cut, and what was said to somebody else does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.runtime.pilot.escapes import END, NONCE_BYTES, Unescape, begin, escape, nonce_of

NONCE = bytes(range(NONCE_BYTES))
ODD = st.binary(max_size=60) | st.lists(st.sampled_from([b"\xfe", b"\x00", b"\x01", b"a"])).map(b"".join)


def heard(stream: bytes, size: int) -> tuple[bytes, str]:
    unescape = Unescape(NONCE)
    said = b"".join(unescape.feed(stream[at : at + size]) for at in range(0, len(stream), size))
    return said, unescape.over


@given(ODD, ODD, st.integers(1, 20))
def test_what_is_said_comes_through_and_what_came_before_does_not(before: bytes, said: bytes, size: int) -> None:
    assert heard(escape(before) + begin(NONCE) + escape(said), size) == (said, "")


@given(ODD, ODD, st.integers(1, 20))
def test_nothing_is_heard_after_the_end(said: bytes, after: bytes, size: int) -> None:
    told, over = heard(begin(NONCE) + escape(said) + END + after, size)
    assert told == said and "gone" in over


@pytest.mark.parametrize("odd", [begin(NONCE), b"\xfe\x03", b"\xfe\xfe", b"\xfea"])
def test_other_escapes_end_it_as_an_error(odd: bytes) -> None:
    said, over = heard(begin(NONCE) + b"before" + odd + b"after", 3)
    assert said == b"before" and "framing" in over


def test_a_stale_half_of_an_escape_hides_no_beginning() -> None:
    assert heard(b"\xfe" + begin(NONCE) + b"said", 1) == (b"said", "")
    assert heard(begin(NONCE)[:5] + begin(NONCE) + b"said", 4) == (b"said", "")


def test_another_client_s_beginning_is_passed_over() -> None:
    other = bytes(NONCE_BYTES)
    assert heard(begin(other) + b"for another" + begin(NONCE) + b"said", 7) == (b"said", "")


@given(st.binary(max_size=300), st.integers(1, 50))
def test_hostile_bytes_are_held_only_in_part(data: bytes, size: int) -> None:
    unescape = Unescape(NONCE)
    for at in range(0, len(data), size):
        unescape.feed(data[at : at + size])
        assert len(unescape._rest) < len(begin(NONCE))


@given(st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES))
def test_a_nonce_holds_no_escape(random: bytes) -> None:
    assert max(nonce_of(random)) < 0x80
