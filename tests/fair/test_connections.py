import gc
import os
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.fair.connections import ConnectionTable, DescriptorCount, key_of, key_of_caller
from hawker.fair.turns import Share


class Link:
    closed = False

    def give_up(self) -> None:
        self.closed = True


def table(total: int = 4, each: int = 2, scarce: bool = False) -> ConnectionTable:
    share = Share(name="connections", total=total, each=each, key="address", over="closed")
    return ConnectionTable(share, lambda: scarce, lambda address: address == "10.0.0.1")


def links(count: int) -> list[Link]:
    return [Link() for _ in range(count)]


def test_address_at_its_bound_loses_the_one_that_rests_longest() -> None:
    there, (a, b, c) = table(), links(3)
    assert there.admit(a, "192.0.2.1") and there.admit(b, "192.0.2.1")
    there.work(a)
    there.rest(a)  # later than `b`
    assert there.admit(c, "192.0.2.1")
    assert (a.closed, b.closed, len(there)) == (False, True, 2)


def test_connection_that_works_keeps_its_place() -> None:
    there, (a, b, c) = table(), links(3)
    for each in (a, b):
        there.admit(each, "192.0.2.1")
        there.work(each)
    assert not there.admit(c, "192.0.2.1") and not a.closed and not b.closed
    there.release(a)
    assert there.admit(c, "192.0.2.1")


def test_newcomer_of_another_address_takes_from_the_one_that_has_most() -> None:
    there, (a, b, c, d, e) = table(), links(5)
    for link, address in ((a, "192.0.2.1"), (b, "192.0.2.2"), (c, "192.0.2.2"), (d, "192.0.2.3")):
        assert there.admit(link, address)
    assert there.admit(e, "192.0.2.4")
    assert [link.closed for link in (a, b, c, d)] == [False, True, False, False]


_Ways = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=8, max_size=60)


@given(_Ways)
def test_each_newcomer_without_room_takes_from_an_address_that_has_most_of_those_with_one_that_rests(
    comers: list[tuple[int, bool]],
) -> None:
    there, inside = table(total=7, each=7), dict[Link, tuple[int, bool]]()
    for address, works in comers:
        having = [of for of, _ in inside.values()]
        resting = {of for of, at_work in inside.values() if not at_work}
        link = Link()
        admitted = there.admit(link, f"192.0.2.{address}")
        closed = [each for each in inside if each.closed]
        if len(inside) < 7:
            assert admitted and not closed
        elif resting:
            assert admitted and [having.count(inside[each][0]) for each in closed] == [max(map(having.count, resting))]
        else:
            assert not admitted and not closed
        for each in closed:
            del inside[each]
        if admitted:
            inside[link] = address, works
            if works:
                there.work(link)
        assert len(there) == len(inside)


def test_everybody_at_work_turns_a_newcomer_away() -> None:
    there = table(total=2, each=1)
    for number, link in enumerate(links(2)):
        there.admit(link, f"192.0.2.{number}")
        there.work(link)
    assert not there.admit(Link(), "192.0.2.9")


def test_scarce_descriptors_count_as_no_room() -> None:
    there, link = table(scarce=True), Link()
    assert not there.admit(link, "192.0.2.1") and len(there) == 0


def test_spared_address_is_bounded_by_the_total_only() -> None:
    there = table(total=4, each=1)
    assert all(there.admit(link, "10.0.0.1") for link in links(4))


def test_release_forgets_and_may_come_twice() -> None:
    there, link = table(), Link()
    there.admit(link, "192.0.2.1")
    for _ in range(2):
        there.release(link)
    there.work(link)
    there.rest(link)
    assert len(there) == 0


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("a socket", "a socket"),
    ],
)
def test_share_of_an_address(address: str, key: str) -> None:
    assert key_of(address) == key


def test_descriptors_are_counted_once_a_second_and_never_too_few() -> None:
    now, counts = [0.0], [6, 9]
    there = DescriptorCount(lambda: now[0], most=10, count=lambda: counts.pop(0))
    assert [there.scarce() for _ in range(4)] == [False, False, True, True]
    now[0] = 1.0
    assert there.scarce() and counts == []
    assert not DescriptorCount(lambda: 0.0, most=1 << 20).scarce()


@pytest.mark.parametrize("told", [True, False], ids=["kernel_knows", "listed"])
def test_descriptors_that_are_open_are_counted(told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not told:
        monkeypatch.setattr(os, "stat", lambda path: SimpleNamespace(st_size=0))
    gc.collect()  # what it found later would be closed then
    there = len(os.listdir("/proc/self/fd"))
    most = int((there + 50) / 0.8)
    assert not DescriptorCount(lambda: 0.0, most).scarce()
    opened = [os.dup(1) for _ in range(100)]
    try:
        assert DescriptorCount(lambda: 0.0, most).scarce()
    finally:
        for descriptor in opened:
            os.close(descriptor)


def test_machines_of_one_private_network_are_one_caller_and_other_addresses_as_ever() -> None:
    assert key_of_caller("fdaa:0:7:1::2") == key_of_caller("fdaa:0:7:9::2") != key_of_caller("fdaa:0:8:1::2")
    for other in ("192.0.2.1", "2001:db8::1", "fdab:0:7:1::2", "nothing"):
        assert key_of_caller(other) == key_of(other)


def test_table_counts_by_the_key_that_it_is_given() -> None:
    share = Share(name="connections", total=9, each=1, key="network", over="closed")
    there, (a, b) = ConnectionTable(share, lambda: False, key=key_of_caller), links(2)
    assert there.admit(a, "fdaa:0:7:1::2") and there.admit(b, "fdaa:0:7:9::2")
    assert a.closed and not b.closed
