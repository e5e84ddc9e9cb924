from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.errors import BadRequest
from hawker.sim.schedulers.trace import COLUMNS, read_trace

HEADER = ",".join(COLUMNS)
GOOD = "0.5,1,512,60,web,100"


def written(tmp_path: Path, *lines: str | bytes) -> Path:
    file = tmp_path / "orders.csv"
    file.write_bytes(b"\n".join(line.encode() if isinstance(line, str) else line for line in lines))
    return file


def test_orders_are_read_line_by_line(tmp_path: Path) -> None:
    file = written(tmp_path, HEADER, GOOD, "", '1.5e1,2,1024,6.5,"db, large",200\r', "20,1,1,1,web,100")
    first, second, third = read_trace(file)
    assert (first.number, first.at_s, first.cpus, first.memory_mib, first.lifetime_s) == (0, 0.5, 1, 512, 60.0)
    assert (second.at_s, second.image_mib) == (15.0, 200)
    assert first.image == third.image != second.image


def test_only_so_many_are_read(tmp_path: Path) -> None:
    assert len(list(read_trace(written(tmp_path, HEADER, GOOD, GOOD, "bad"), most=2))) == 2


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    assert len(list(read_trace(written(tmp_path, b"\xef\xbb\xbf" + HEADER.encode(), GOOD)))) == 1


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("0.4,1,512,60,web,100", "arrival_s is 0.4 after 0.5: orders must come by time"),
        ("1,1,512,60,web", "5 columns, 6 wanted"),
        ("1,1,512,60,web,100,9", "7 columns, 6 wanted"),
        ("1,x,512,60,web,100", "cpus is no number: 'x'"),
        ("1,,512,60,web,100", "cpus is no number: ''"),
        ("1,-1,512,60,web,100", "cpus is no number: '-1'"),
        ("nan,1,512,60,web,100", "arrival_s is no number: 'nan'"),
        ("1e99,1,512,60,web,100", "arrival_s must be between 0 and 1e+09, not 1e99"),
        ("1,1.5,512,60,web,100", "cpus must be a whole number, not 1.5"),
        ("1,1,512,0,web,100", "lifetime_s must be between 0.001 and 1e+09, not 0"),
        ("1,1,512,60,,100", "image must be a printable name of 1 to 256 characters, not ''"),
        ("1,1,512,60,a\x07b,100", "image must be a printable name of 1 to 256 characters, not 'a\\x07b'"),
        ('1,1,512,60,"web,100', "no CSV: unexpected end of data"),
        (b"1,1,512,60,\xff,100", "not UTF-8"),
        ("1," * 4000, "longer than 4096 bytes"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named(tmp_path: Path, bad: str | bytes, says: str) -> None:
    with pytest.raises(BadRequest) as caught:
        list(read_trace(written(tmp_path, HEADER, GOOD, bad)))
    assert str(caught.value) == f"invalid_argument: the trace's line 3: {says}"


@pytest.mark.parametrize("lines", [(), ("a,b",), (GOOD,)])
def test_another_header_is_refused(tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(BadRequest, match="line"):
        list(read_trace(written(tmp_path, *lines)))


def test_a_trace_without_orders_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="there is no order"):
        list(read_trace(written(tmp_path, HEADER, "", "")))


@given(data=st.binary(max_size=200))
def test_whatever_is_in_the_file_it_is_an_order_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    file = tmp_path_factory.mktemp("traces") / "orders.csv"
    file.write_bytes(HEADER.encode() + b"\n" + data)
    try:
        assert all(order.memory_mib > 0 for order in read_trace(file))
    except BadRequest as error:
        assert "line" in str(error)
