"""No key occupies all of a share."""

from hypothesis import given
from hypothesis import strategies as st

from hawker.fair.occupancy import Occupancy
from hawker.fair.turns import Share

SHARE = Share(name="guests", total=100, each=80, reserve=20, key="app", over="refused")


def come(occupancy: Occupancy, key: str, count: int) -> int:
    """How many of them came in."""
    came = 0
    while came < count and occupancy.fits(key):
        occupancy.enter(key)
        came += 1
    return came


def test_one_alone_has_nearly_all_and_others_still_come_in() -> None:
    occupancy = Occupancy(SHARE)
    assert come(occupancy, "mallory", 1000) == 80
    assert come(occupancy, "ben", 1000) == 20
    assert not occupancy.fits("carol"), "it is full"
    occupancy.leave("mallory")
    assert not occupancy.fits("mallory"), "what it gave back is for others"
    assert occupancy.fits("carol")


def test_several_together_leave_room_for_one_more() -> None:
    occupancy = Occupancy(SHARE)
    for number in range(8):
        come(occupancy, f"mallory{number}", 10)
    assert all(not occupancy.fits(f"mallory{number}") for number in range(1, 8) if occupancy.total >= 100)
    assert come(occupancy, "ben", 5) == 5


def test_each_has_a_bound_of_its_own() -> None:
    occupancy = Occupancy(Share(name="guests", total=100, each=3, key="app", over="refused"))
    assert come(occupancy, "ben", 5) == 3


def test_members_counted_may_be_many_at_once() -> None:
    occupancy = Occupancy(SHARE)
    occupancy.enter("mallory", 79)
    assert not occupancy.fits("mallory", 2) and occupancy.fits("ben", 20)
    occupancy.leave("mallory", 79)
    assert occupancy.total == 0 and occupancy.fits("mallory", 80)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=400))
def test_a_crowd_counts_its_members(deeds: list[tuple[str, bool]]) -> None:
    occupancy, inside = Occupancy(SHARE), dict.fromkeys("abc", 0)
    for key, comes in deeds:
        if comes and occupancy.fits(key):
            occupancy.enter(key)
            inside[key] += 1
        elif not comes and inside[key]:
            occupancy.leave(key)
            inside[key] -= 1
        assert occupancy.total == sum(inside.values()) <= SHARE.total
