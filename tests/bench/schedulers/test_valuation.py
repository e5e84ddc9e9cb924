import pytest

from bench.schedulers.valuation import bid_of, promise, ranked, remembering
from hawker.market.preferences import preferences
from tests.bench.schedulers.pieces import host, order

WISHES = preferences()


def test_a_bid_has_what_is_left_after_filling() -> None:
    there = host(cpus=64, memory_mib=4096)
    there.take(order(0))
    bid = bid_of(there, order(1))
    cpu, memory = bid.headroom["cpu"], bid.headroom["memory"]
    assert (cpu.total, cpu.takes, cpu.left) == (8000, 125, 7750)
    assert (memory.total, memory.takes, memory.left) == (4096, 1024, 2048)
    assert bid.missing_bytes == bid.image_bytes == 250 << 20 and bid.same_app == 1


def test_host_without_room_or_down_does_not_bid() -> None:
    full, down, able = host(0, memory_mib=512), host(1), host(2)
    down.up = False
    assert ranked([full, down, able], order(), WISHES) == [able]


def test_the_emptier_host_is_better_and_the_image_can_outweigh_it() -> None:
    emptier, holder = host(0), host(1)
    holder.take(order(1, image=2, memory_mib=4096))
    assert ranked([holder, emptier], order(), WISHES) == [emptier, holder]
    holder.pull(order(), 0.0)
    assert ranked([holder, emptier], order(), WISHES) == [holder, emptier]


def test_a_host_that_is_near_full_loses_for_all_that_it_holds_the_image() -> None:
    emptier, holder = host(0), host(1)
    holder.pull(order(), 0.0)
    holder.take(order(1, image=2, cpus=60, memory_mib=31_000))
    assert ranked([holder, emptier], order(), WISHES) == [emptier, holder]


def test_the_machines_of_one_app_keep_away_from_each_other() -> None:
    both = [host(0), host(1)]
    for each, image in zip(both, (1, 2), strict=True):
        each.pull(order(image=1), 0.0)
        each.take(order(9, image=image))
    assert ranked(both, order(), WISHES)[0] is both[1]


def test_a_promise_is_less_the_more_is_used() -> None:
    assert promise(0.0, 0.0, WISHES) == pytest.approx(1.0)
    assert promise(0.2, 0.2, WISHES) > promise(0.9, 0.2, WISHES) > promise(0.9, 0.9, WISHES)


def test_curves_that_remember_read_the_same() -> None:
    usual = preferences()
    fast = remembering(usual)
    for name, curve in usual.curves.items():
        for value in (0.0, 0.5, 0.81, 0.5, 0.97, 3.0, 0.81):
            assert fast.curves[name].at(value) == curve.at(value)
