from collections import Counter

from hawker.chaos.chance import SeededChance


def dealt(chance: SeededChance) -> tuple[object, ...]:
    return (
        chance.happens(0.5),
        chance.between(1, 9),
        chance.choice("abcdef"),
        chance.weighted([(1, "x"), (2, "y"), (3, "z")]),
        tuple(chance.shuffled(range(10))),
    )


def test_the_same_seed_and_stream_deal_the_same() -> None:
    assert dealt(SeededChance(7, 2)) == dealt(SeededChance(7, 2))


def test_another_seed_and_another_stream_deal_something_else() -> None:
    assert len({dealt(SeededChance(seed, stream)) for seed in range(5) for stream in range(5)}) == 25


def test_weights_are_kept() -> None:
    chance = SeededChance(1)
    counted = Counter(chance.weighted([(1, "rare"), (0, "never"), (9, "often")]) for _ in range(2000))
    assert counted["never"] == 0 and 100 < counted["rare"] < 300


def test_bounds_are_kept_and_a_shuffle_loses_nothing() -> None:
    chance = SeededChance(3)
    assert all(2 <= chance.between(2, 3) < 3 for _ in range(200))
    assert {chance.choice((1, 2, 3)) for _ in range(200)} == {1, 2, 3}
    assert sorted(chance.shuffled(range(50))) == list(range(50)) != chance.shuffled(range(50))
