"""Plans: the same from the same seed, with every kind of blow, and networks that come to one number."""

from hawker.app import network_id
from hawker.sim.networks.networks_plan import PAIRS, NetworksVerb, draw


def test_a_plan_is_its_seed_s_and_in_order() -> None:
    plan = draw(7)
    assert plan == draw(7) != draw(8)
    times = [operation.at for operation in plan.operations]
    assert times == sorted(times)
    assert [operation.number for operation in plan.operations] == list(range(1, len(times) + 1))


def test_plans_have_every_kind_of_blow() -> None:
    assert {operation.verb for seed in range(1, 30) for operation in draw(seed).operations} == set(NetworksVerb)


def test_each_two_networks_come_to_one_number() -> None:
    numbers = [network_id(*pair) for pair in PAIRS]
    assert numbers[::2] == numbers[1::2] and len(set(numbers)) == len(PAIRS) // 2
