import pytest

from hawker.region import SPOTS, accepts


@pytest.mark.parametrize(
    ("expression", "region", "answer"),
    [
        (None, "local", True),
        ("", "mad", True),
        ("any", "rack-7", True),
        ("mad", "mad", True),
        ("iad, mad", "mad", True),
        ("iad", "mad", False),
        ("eu", "mad", True),
        ("lhr,eu", "ams", True),
        ("us", "iad", True),
        ("usa", "yyz", False),
        ("na", "yyz", True),
        ("na", "iad", True),
        ("sa", "gru", True),
        ("apac", "syd", True),
        ("eu", "local", False),
        ("EU", "ams", False),
        ("rack-7", "rack-7", True),
    ],
)
def test_an_expression_is_a_list_of_codes_and_aliases(expression: str | None, region: str, answer: bool) -> None:
    assert accepts(expression, region) is answer


def test_every_known_code_is_on_the_map() -> None:
    assert all(-90 <= spot.latitude <= 90 and -180 <= spot.longitude <= 180 and spot.name for spot in SPOTS.values())
    assert len({(spot.latitude, spot.longitude) for spot in SPOTS.values()}) == len(SPOTS) == 19
