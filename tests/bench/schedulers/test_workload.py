from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.schedulers.workload import COLUMNS, Workload, orders, read_trace
from hawker.errors import BadRequest

FLEET_MIB = 1_000_000


def test_the_same_seed_gives_the_same_orders_and_another_seed_others() -> None:
    first, again, other = (list(orders(Workload(orders=200, seed=seed), FLEET_MIB)) for seed in (1, 1, 2))
    assert first == again != other


def test_orders_come_by_time_and_are_numbered() -> None:
    made = list(orders(Workload(orders=500), FLEET_MIB))
    assert all(before.at_s <= after.at_s for before, after in pairwise(made))
    assert [order.number for order in made] == list(range(500))


def test_lifetimes_lie_between_the_bounds_and_have_the_mean_that_is_said() -> None:
    workload = Workload(orders=20_000)
    lives = [order.lifetime_s for order in orders(workload, FLEET_MIB)]
    assert min(lives) >= workload.shortest_s and max(lives) <= workload.longest_s
    assert sum(lives) / len(lives) == pytest.approx(workload.mean_lifetime_s(), rel=0.1)
    assert max(lives) > 10 * workload.mean_lifetime_s()


def test_few_images_are_most_of_the_orders() -> None:
    counts = Counter(order.image for order in orders(Workload(orders=5000, burst_share=0.0), FLEET_MIB))
    assert sum(count for _, count in counts.most_common(10)) > 1500 and len(counts) > 300


def test_one_image_has_one_size() -> None:
    sizes = {(order.image, order.image_mib) for order in orders(Workload(orders=2000), FLEET_MIB)}
    assert len(sizes) == len({image for image, _ in sizes})


def test_orders_come_at_the_rate_that_drives_the_fleet_to_its_load() -> None:
    workload = Workload(orders=10_000, burst_share=0.0)
    last_s = max(order.at_s for order in orders(workload, FLEET_MIB))
    assert 10_000 / last_s == pytest.approx(workload.rate(FLEET_MIB), rel=0.05)


def test_a_burst_is_one_app_at_once() -> None:
    made = list(orders(Workload(orders=100, burst_share=1.0, burst_orders=50), FLEET_MIB))
    for burst in (made[:50], made[50:]):
        assert len({order.image for order in burst}) == 1
        assert burst[-1].at_s - burst[0].at_s < 15.0


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
def test_any_line_of_file_is_an_order_or_an_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.mktemp("traces") / "orders.csv"
    file.write_bytes(HEADER.encode() + b"\n" + data)
    try:
        assert all(order.memory_mib > 0 for order in read_trace(file))
    except BadRequest as error:
        assert "line" in str(error)
