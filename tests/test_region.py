import pytest

from hawker.region import SPOTS, accepts, by_distance, distance_km, preference


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


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        (None, ["mad"]),
        ("", ["mad"]),
        ("sin,cdg", ["sin", "cdg"]),
        ("any", ["mad", "cdg", "iad", "sin", "attic"]),
        ("us,eu", ["iad", "mad", "cdg"]),
        ("cdg,any", ["cdg", "mad", "iad", "sin", "attic"]),
        ("nrt", []),
        ("nrt,attic", ["attic"]),
    ],
)
def test_a_list_is_an_order_of_preference_and_an_alias_goes_by_distance(
    expression: str | None, found: list[str]
) -> None:
    assert list(preference(expression, ["attic", "sin", "iad", "cdg", "mad"], "mad")) == found


def test_distances_are_those_of_the_globe() -> None:
    assert distance_km("mad", "cdg") == pytest.approx(1060, rel=0.05)
    assert distance_km("syd", "gru") == pytest.approx(13_350, rel=0.05)
    assert distance_km("mad", "attic") == float("inf") and distance_km("attic", "attic") == 0
    assert list(by_distance("attic", ["sin", "attic", "mad"])) == ["attic", "mad", "sin"]
