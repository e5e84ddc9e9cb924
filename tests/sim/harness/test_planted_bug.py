import pytest

from hawker.sim.harness.planted_bug import PlantedBug, kit_of

BUGS = (PlantedBug(name="one", what="is wrong", kit=1), PlantedBug(name="two", what="is wrong too", kit=2))


def test_kit_with_bug_is_found_by_name_of_bug() -> None:
    assert kit_of(BUGS, "two", 0) == 2


def test_kit_without_name_is_sound() -> None:
    assert kit_of(BUGS, None, 0) == 0


def test_kit_of_unknown_bug_is_refused() -> None:
    with pytest.raises(KeyError):
        kit_of(BUGS, "three", 0)
