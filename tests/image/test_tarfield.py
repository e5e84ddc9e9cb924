"""Facts about the fields of tar headers."""

import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.image.tarfield import TarError, number, seconds_to_ns, text


@pytest.mark.parametrize(
    ("field", "wanted"),
    [(b"0000644\0", 0o644), (b"   644 \0", 0o644), (b"", 0), (b"\0" * 8, 0), (b"77777777777 ", 8 * 1024**3 - 1)],
)
def test_octal_is_read(field: bytes, wanted: int) -> None:
    assert number(field) == wanted


@given(st.integers(min_value=-(2**62), max_value=2**62))
def test_base_256_is_read_as_tarfile_writes_it(value: int) -> None:
    field = tarfile.itn(value, 12, tarfile.GNU_FORMAT)  # type: ignore[attr-defined]
    assert number(field) == value


@pytest.mark.parametrize("field", [b"0x12", b"9", b"1_0", b"-1", b"+7", b"1 2", b"0" * 25])
def test_other_numbers_are_refused(field: bytes) -> None:
    with pytest.raises(TarError, match="cannot be read"):
        number(field)


@pytest.mark.parametrize("field", [b"-1", b"1_000", b"12e3", b"0x1f", b"1" * 25])
def test_decimals_are_plain_digits(field: bytes) -> None:
    assert number(b"1024", 10) == 1024
    with pytest.raises(TarError):
        number(field, 10)


def test_text_ends_at_the_first_zero() -> None:
    assert text(b"name\0rest") == b"name"
    assert text(b"whole") == b"whole"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(b"1", 10**9), (b"1.5", 1_500_000_000), (b"0.000000001", 1), (b"1.", 10**9), (b"2.1234567891", 2_123_456_789)],
)
def test_times_keep_their_nanoseconds(value: bytes, wanted: int) -> None:
    assert seconds_to_ns(value) == wanted


@pytest.mark.parametrize("value", [b"", b"now", b"1e9", b"1.5.5", b" 1"])
def test_other_times_are_refused(value: bytes) -> None:
    with pytest.raises(TarError, match="a time"):
        seconds_to_ns(value)
