from collections import Counter

from hawker.clock import ManualClock
from hawker.sim.harness.chance import Chance


def test_choices_repeat_with_the_seed() -> None:
    first, second = Chance(ManualClock(seed=3)), Chance(ManualClock(seed=3))
    assert [first.between(0, 99) for _ in range(20)] == [second.between(0, 99) for _ in range(20)]


def test_both_ends_come_and_nothing_beyond() -> None:
    chance = Chance(ManualClock(seed=1))
    assert {chance.between(2, 4) for _ in range(200)} == {2, 3, 4}
    assert {chance.one_of("ab") for _ in range(50)} == {"a", "b"}


def test_weights_are_kept() -> None:
    chance = Chance(ManualClock(seed=1))
    drawn = Counter(chance.weighed({"often": 9.0, "rarely": 1.0, "never": 0.0}) for _ in range(1000))
    assert drawn["never"] == 0 and 50 < drawn["rarely"] < 200


def test_a_share_of_nothing_never_happens() -> None:
    chance = Chance(ManualClock())
    assert not any(chance.happens(0.0) for _ in range(100)) and all(chance.happens(1.0) for _ in range(100))
