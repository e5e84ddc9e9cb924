from hypothesis import given
from hypothesis import strategies as st

from hawker.node import Capacity, Resources, shortfall
from tests.bench.schedulers.pieces import host, order


def test_room_taken_comes_back() -> None:
    there, one = host(), order()
    assert there.admit(one, ticket=1)
    assert (there.cpus_left, there.memory_left, there.apps) == (63, 31_744, {1: 1})
    there.release(one)
    assert (there.cpus_left, there.memory_left, there.apps) == (64, 32_768, {})
    there.release(one)
    assert there.cpus_left == 64


def test_an_order_is_admitted_once() -> None:
    there = host()
    assert there.admit(order(), ticket=1) and not there.admit(order(), ticket=2)
    assert len(there.machines) == 1


def test_a_message_that_comes_after_its_cancel_is_refused_and_a_new_one_is_not() -> None:
    there = host()
    there.cancel(order(), ticket=1)
    assert not there.admit(order(), ticket=1) and there.admit(order(), ticket=2)


def test_memory_of_cancels_is_bounded() -> None:
    there = host()
    for ticket in range(1500):
        there.cancel(order(), ticket)
    assert not there.has_cancelled(0) and there.has_cancelled(1499)


@given(
    cpus=st.integers(0, 80),
    memory_mib=st.integers(0, 40_000),
    wanted=st.tuples(st.integers(1, 80), st.integers(1, 40_000)),
)
def test_host_admits_as_a_worker_does(cpus: int, memory_mib: int, wanted: tuple[int, int]) -> None:
    there = host(cpus=64, memory_mib=32_768)
    there.cpus_left, there.memory_left = 64 - cpus, 32_768 - memory_mib
    capacity = Capacity(cpus=8, memory_mib=32_768, disk_mib=0, shared_ratio=8.0)
    used = Resources(shared_cpus=cpus, memory_mib=memory_mib)
    asked = Resources(shared_cpus=wanted[0], memory_mib=wanted[1])
    fits = there.fits(order(cpus=wanted[0], memory_mib=wanted[1]))
    assert fits == (not shortfall(capacity, used, asked))


def test_images_come_one_after_another_and_once() -> None:
    there = host()
    assert [there.pull(order(image=image), 10.0) for image in (1, 2, 1)] == [12.0, 14.0, 12.0]
    assert there.pulled_mib == 500 and there.pull(order(image=1), 20.0) == 20.0


def test_the_image_that_was_not_used_for_longest_makes_room() -> None:
    there = host(cache_mib=600)
    for image in (1, 2, 1, 3):
        there.pull(order(image=image), 0.0)
    assert list(there.images) == [1, 3] and there.held_mib == 500
    assert there.lacks_mib(order(image=2)) == 250 and there.lacks_mib(order(image=3)) == 0


def test_busy_is_the_scarcest_resource() -> None:
    there = host(cpus=4, memory_mib=4096)
    there.take(order(cpus=1, memory_mib=2048))
    assert there.busy() == 0.5
