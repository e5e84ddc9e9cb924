from collections import Counter
from itertools import pairwise

import pytest

from hawker.sim.schedulers.workload import Workload, orders

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
