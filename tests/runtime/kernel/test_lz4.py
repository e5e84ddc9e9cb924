import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.runtime.kernel.lz4 import MAGIC, unpack

LIMIT = 1 << 24


def frame(*blocks: bytes) -> bytes:
    return MAGIC + b"".join(len(block).to_bytes(4, "little") + block for block in blocks)


def length(value: int) -> bytes:
    """What follows a nibble of 15."""
    return b"\xff" * (value // 255) + bytes([value % 255])


def literals(data: bytes) -> bytes:
    """A last sequence: literals and no match."""
    if len(data) < 15:
        return bytes([len(data) << 4]) + data
    return b"\xf0" + length(len(data) - 15) + data


def match(data: bytes, offset: int, size: int) -> bytes:
    """Literals, then `size` bytes from `offset` back. Both short enough for one nibble, or the match long."""
    low = min(size - 4, 15)
    return (
        bytes([len(data) << 4 | low]) + data + offset.to_bytes(2, "little") + (length(size - 19) if low == 15 else b"")
    )


@given(st.binary(max_size=2000))
def test_literals_come_back(data: bytes) -> None:
    assert unpack(frame(literals(data)), LIMIT) == data


def test_a_match_repeats_what_was() -> None:
    assert unpack(frame(match(b"abcdef", 6, 6) + literals(b"!")), LIMIT) == b"abcdefabcdef!"


def test_a_match_that_reaches_into_itself_repeats_itself() -> None:
    assert unpack(frame(match(b"ab", 2, 305) + literals(b"")), LIMIT) == b"ab" * 153 + b"a"


def test_blocks_follow_each_other_and_know_nothing_of_each_other() -> None:
    assert unpack(frame(literals(b"one "), literals(b"two")), LIMIT) == b"one two"
    with pytest.raises(ValueError, match="outside its block"):
        unpack(frame(literals(b"one "), match(b"", 1, 4) + literals(b"")), LIMIT)


def test_the_size_that_a_kernels_build_appends_is_passed_over() -> None:
    assert unpack(frame(literals(b"kernel")) + (6).to_bytes(4, "little"), LIMIT) == b"kernel"


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        (match(b"a", 2, 4), "outside its block"),
        (match(b"a", 0, 4), "outside its block"),
        (bytes([5 << 4]) + b"abc", "run past"),
        (b"\xf0\xff\xff", "cut off"),
        (b"\x10a\x01", "cut off"),
        (match(b"a", 1, 9_000_000) + literals(b""), "beyond its block"),
        (b"", "cut off"),
    ],
)
def test_a_damaged_block_is_refused(block: bytes, complaint: str) -> None:
    data = frame(block) if block else MAGIC + b"\x01\0\0\0\xf0"
    with pytest.raises(ValueError, match=complaint):
        unpack(data, LIMIT)


def test_nothing_is_unpacked_beyond_the_limit() -> None:
    bomb = match(b"a", 1, 1_000_000) + literals(b"")
    with pytest.raises(ValueError, match="more than 1500000 bytes"):
        unpack(frame(bomb, bomb, bomb), 1_500_000)


def test_another_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="not a legacy LZ4 frame"):
        unpack(b"\x04\x22\x4d\x18", LIMIT)


@given(st.binary(max_size=200))
def test_any_bytes_end_in_bytes_or_a_refusal(data: bytes) -> None:
    try:
        unpack(frame(data), LIMIT)
    except ValueError:
        return
