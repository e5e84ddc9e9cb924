"""What counts as noticed."""

from hawker.chaos.hostile.bystander import Sighting
from hawker.chaos.hostile.judgement import FLOOR_MS, Alone, Strays, during, figures, wrong


def looks(*seconds: float, kind: str = "get", began: float = 0.0, wrong: str = "") -> list[Sighting]:
    return [Sighting(kind=kind, began=began, seconds=each, wrong=wrong) for each in seconds]


def alone(*seconds: float) -> dict[str, list[float]]:
    memory = Alone()
    memory.learn(looks(*seconds))
    return memory.taken_s


def test_an_operation_that_stands_still_is_slow() -> None:
    [told] = figures(looks(0.01, 0.01, 3.0), alone(0.01, 0.02))
    assert told.slow
    assert str(told) == "get took 3000 ms at p99 and 10 ms at p50, alone 20 ms and 20 ms"


def test_twice_as_long_is_not_slow_below_what_a_host_has_by_itself() -> None:
    [told] = figures(looks(FLOOR_MS / 1000), alone(0.01))
    assert not told.slow


def test_less_than_twice_as_long_is_never_slow() -> None:
    [told] = figures(looks(3.9), alone(2.0))
    assert not told.slow


def test_a_look_that_hung_through_the_attack_counts_to_it() -> None:
    hung = looks(20.0, began=5.0)
    assert during(hung, 10.0, 12.0) == hung
    assert during(looks(1.0, began=5.0), 10.0, 12.0) == []
    assert during(looks(1.0, began=12.5), 10.0, 12.0) == []


def test_kinds_that_were_never_seen_alone_are_not_compared() -> None:
    assert list(figures(looks(9.0, kind="exec"), alone(0.01))) == []


def test_a_failed_sample_teaches_nothing_of_how_long_things_take() -> None:
    memory = Alone()
    memory.learn(looks(9.0, wrong="no answer"))
    assert not memory.taken_s


def test_an_error_is_told_once_with_how_often() -> None:
    seen = [*looks(1.0, 1.0, wrong="gone"), *looks(1.0), *looks(1.0, kind="page", wrong="gone")]
    assert wrong(seen) == ["get: gone (2 times)", "page: gone"]


def test_left_is_what_two_looks_after_each_other_see() -> None:
    strays = Strays()
    assert strays.left(frozenset({"files of a", "mount b"})) == {"files of a", "mount b"}
    assert strays.left(frozenset({"files of c", "mount b"})) == {"mount b"}
    assert strays.left(frozenset({"files of d"})) == frozenset()
    assert strays.left(frozenset({"files of d"})) == {"files of d"}
