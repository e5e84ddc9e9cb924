"""Facts about GPUs as values: how they are told, and which are chosen."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.gpu import Demand, Gpu, assigned, choose, how_often, is_kind, keep, parse_gpus

ONE, TWO, THREE = (Gpu(kind="a10", address=f"0000:0{number}:00.0") for number in (1, 2, 3))
OTHER = Gpu(kind="l40s", address="0000:65:00.0")
ALL = (ONE, TWO, THREE, OTHER)


def test_a_device_is_a_kind_and_an_address() -> None:
    assert parse_gpus(["a100-pcie-40gb=0000:65:00.0", "a10=0001:ff:1f.7"]) == (
        Gpu(kind="a100-pcie-40gb", address="0000:65:00.0"),
        Gpu(kind="a10", address="0001:ff:1f.7"),
    )
    assert parse_gpus([]) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a10",
        "=0000:65:00.0",
        "a10=",
        "a10=65:00.0",
        "A10=0000:65:00.0",
        "a10=0000:65:00.8",
        "a10=0000:65:20.0",
        "a10=0000:6G:00.0",
        "a10=0000:65:00.0/../x",
        "a10=0000:65:00.0\n",
        "-a10=0000:65:00.0",
        "a" * 41 + "=0000:65:00.0",
    ],
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="KIND=PCI-ADDRESS"):
        parse_gpus([text])


def test_a_device_is_told_once() -> None:
    with pytest.raises(ValueError, match="names too"):
        parse_gpus(["a10=0000:65:00.0", "l40s=0000:65:00.0"])


def test_kinds_are_names() -> None:
    assert is_kind("a10") and is_kind("a") and not is_kind("") and not is_kind("a10-") and not is_kind("a 10")


def test_gpus_nobody_has_are_chosen_in_the_order_of_the_node() -> None:
    assert choose(Demand(kind="a10", count=2), ALL, taken={ONE.address}) == (TWO, THREE)
    assert choose(Demand(kind="a10", count=3), ALL, taken={ONE.address}) is None
    assert choose(Demand(kind="h100", count=1), ALL, taken=()) is None


def test_gpus_the_asker_holds_are_chosen_first() -> None:
    assert choose(Demand(kind="a10", count=2), ALL, taken=(), held=(THREE,)) == (THREE, ONE)
    assert choose(Demand(kind="l40s", count=1), ALL, taken=(), held=(THREE,)) == (OTHER,)


def test_a_device_that_the_node_has_no_more_is_not_chosen_again() -> None:
    assert choose(Demand(kind="a10", count=1), [TWO], taken=(), held=(ONE,)) == (TWO,)


def test_how_often_counts_whole_machines() -> None:
    assert how_often(Demand(kind="a10", count=2), ALL, ()) == 1
    assert how_often(Demand(kind="a10", count=1), ALL, {TWO.address}) == 2
    assert how_often(Demand(kind="h100", count=1), ALL, ()) == 0


_demands = st.builds(Demand, kind=st.sampled_from(["a10", "l40s"]), count=st.integers(1, 3))


@given(st.lists(_demands, min_size=2, max_size=6))
def test_an_instance_finds_its_devices_through_any_updates(demands: list[Demand]) -> None:
    """Whatever is asked for next, the devices of the instance that runs stay the first of their kind."""
    held: tuple[Gpu, ...] = ()
    for before, after in pairwise(demands):
        chosen = choose(before, ALL, (), held)
        if chosen is None:
            return
        running = assigned(before, keep(chosen, held))
        assert running == chosen
        following = choose(after, ALL, (), chosen)
        if following is not None:
            both = keep(following, chosen)
            assert set(assigned(before, both)) == set(running)
            assert assigned(after, both) == following
        held = chosen
    assert assigned(None, held) == ()
