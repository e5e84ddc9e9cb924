import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.errors import CannotStart
from hawker.node import MAX_LABELS, Capacity, Resources, how_many, labels_of, shortfall, shortfall_text

HOST = Capacity(cpus=4, memory_mib=8192, disk_mib=10_000, shared_ratio=2.0)


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ({"memory_mb": 808}, "808 MiB of memory"),
        ({"cpus": 1, "memory_mb": 808, "gpus.a10": 1}, "1 cpus, 808 MiB of memory and 1 gpus.a10"),
        ({}, ""),
    ],
)
def test_a_shortfall_is_told_in_words(missing: dict[str, int], text: str) -> None:
    assert shortfall_text(missing) == text


def test_an_order_that_fits_lacks_nothing() -> None:
    assert shortfall(HOST, Resources(), Resources(shared_cpus=8, memory_mib=8192, disk_mib=10_000)) == {}


def test_performance_cpus_are_never_oversold() -> None:
    assert shortfall(HOST, Resources(performance_cpus=3), Resources(performance_cpus=2)) == {"cpus": 1}


def test_shared_cpus_are_sold_by_the_ratio_of_what_performance_cpus_leave() -> None:
    assert shortfall(HOST, Resources(performance_cpus=3), Resources(shared_cpus=2)) == {}
    assert shortfall(HOST, Resources(performance_cpus=3), Resources(shared_cpus=3)) == {"cpus": 1}


def test_a_performance_cpu_is_not_sold_from_under_shared_ones() -> None:
    assert shortfall(HOST, Resources(shared_cpus=8), Resources(performance_cpus=1)) == {"cpus": 2}


def test_each_lacking_resource_is_named_with_its_amount() -> None:
    asked = Resources(shared_cpus=1, memory_mib=9000, disk_mib=10_001)
    assert shortfall(HOST, Resources(), asked) == {"memory_mb": 808, "disk_mb": 1}


amounts = st.builds(
    Resources,
    shared_cpus=st.integers(0, 9),
    performance_cpus=st.integers(0, 5),
    memory_mib=st.integers(0, 5000),
    disk_mib=st.integers(0, 6000),
)


@given(st.lists(amounts, max_size=12))
def test_admitting_only_what_fits_never_oversells(orders: list[Resources]) -> None:
    used = Resources()
    for order in orders:
        if not shortfall(HOST, used, order):
            used = used.plus(order)
    assert used.performance_cpus <= HOST.cpus
    assert used.shared_cpus <= (HOST.cpus - used.performance_cpus) * HOST.shared_ratio
    assert used.memory_mib <= HOST.memory_mib and used.disk_mib <= HOST.disk_mib


@given(st.integers(0, 40), st.integers(0, 4000), st.integers(1, 8), st.integers(1, 2000), st.integers(1, 50))
def test_how_many_fit_is_the_last_number_that_is_not_short(
    cpus: int, memory: int, asked_cpus: int, asked_memory: int, most: int
) -> None:
    capacity = Capacity(cpus=cpus, memory_mib=memory, disk_mib=0)
    asked = Resources(shared_cpus=asked_cpus, memory_mib=asked_memory)
    fits = how_many(capacity, Resources(), asked, most=most)
    assert 0 <= fits <= most
    assert fits == 0 or not shortfall(capacity, Resources(), asked.times(fits))
    assert fits == most or shortfall(capacity, Resources(), asked.times(fits + 1))


def test_labels_are_pairs() -> None:
    assert labels_of(("disk=ssd", "example.com/rack=a=1", "gpu=")) == {
        "disk": "ssd",
        "example.com/rack": "a=1",
        "gpu": "",
    }


@pytest.mark.parametrize(
    "text", ["", "disk", "=ssd", "a b=c", "disk=a,b", "disk=\n", f"disk={'x' * 257}", f"{'k' * 65}=v"]
)
def test_a_text_that_is_no_label_is_refused(text: str) -> None:
    with pytest.raises(CannotStart, match="is not KEY=VALUE, such as disk=ssd"):
        labels_of((text,))


def test_a_label_is_given_once_and_there_are_not_many() -> None:
    with pytest.raises(CannotStart, match="label disk is given twice"):
        labels_of(("disk=a", "disk=b"))
    with pytest.raises(CannotStart, match="at most 64 labels, not 65"):
        labels_of(f"l{number}=" for number in range(MAX_LABELS + 1))
