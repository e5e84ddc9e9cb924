"""The numbers of the contract."""

from hawker.api.rate import Rate


def test_the_classes_are_those_of_the_contract() -> None:
    assert (Rate.USUAL.value.per_s, Rate.USUAL.value.burst) == (1, 3)
    assert (Rate.LOOK.value.per_s, Rate.LOOK.value.burst) == (5, 10)
    assert (round(Rate.APP_DELETION.value.per_s * 60), Rate.APP_DELETION.value.burst) == (100, 100)
