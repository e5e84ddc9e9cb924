from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from bench.schedulers.host import Host
from bench.schedulers.view import View
from tests.bench.schedulers.pieces import host, order

_HOSTS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.booleans()), min_size=1, max_size=20)


def fleet(shapes: Sequence[tuple[int, int, bool]]) -> tuple[list[Host], View]:
    hosts = [host(number, cpus=8, memory_mib=8) for number in range(len(shapes))]
    view = View(hosts)
    for each, (cpus, memory_mib, up) in zip(hosts, shapes, strict=True):
        each.cpus_left, each.memory_left = cpus, memory_mib
        view.correct(each)
        each.up = up
        view.note(each)
    return hosts, view


@given(shapes=_HOSTS, cpus=st.integers(1, 8), memory_mib=st.integers(1, 8))
def test_view_finds_the_hosts_that_a_scan_finds(
    shapes: list[tuple[int, int, bool]], cpus: int, memory_mib: int
) -> None:
    hosts, view = fleet(shapes)
    wanted = order(cpus=cpus, memory_mib=memory_mib)
    able = [each for each in hosts if each.up and each.fits(wanted)]
    assert view.first(wanted) == (able[0].number if able else None)
    emptiest = max(able, key=lambda each: (1 - each.busy(), -each.number), default=None)
    assert view.emptiest(wanted) == (None if emptiest is None else emptiest.number)


def test_taken_room_is_given_back() -> None:
    _, view = fleet([(8, 8, True)])
    view.take(0, order(cpus=2, memory_mib=3))
    assert view.left(0) == (6, 5)
    view.give(0, order(cpus=2, memory_mib=3))
    assert view.left(0) == (8, 8)


def test_a_host_that_is_back_says_what_its_records_leave() -> None:
    hosts, view = fleet([(8, 8, False)])
    assert view.left(0) == (-1, -1) and not view.fits(0, order(cpus=1, memory_mib=1))
    hosts[0].up, hosts[0].cpus_left = True, 3
    view.note(hosts[0])
    assert view.left(0) == (3, 8)
