"""Nobody is all of a crowd."""

from hypothesis import given
from hypothesis import strategies as st

from hawker.fair.crowd import Crowd
from hawker.fair.turns import Share

SHARE = Share(name="guests", total=100, each=80, reserve=20, key="app", over="refused")


def come(crowd: Crowd, key: str, count: int) -> int:
    """How many of them came in."""
    came = 0
    while came < count and crowd.fits(key):
        crowd.enter(key)
        came += 1
    return came


def test_one_alone_has_nearly_all_and_others_still_come_in() -> None:
    crowd = Crowd(SHARE)
    assert come(crowd, "mallory", 1000) == 80
    assert come(crowd, "ben", 1000) == 20
    assert not crowd.fits("carol"), "it is full"
    crowd.leave("mallory")
    assert not crowd.fits("mallory"), "what it gave back is for others"
    assert crowd.fits("carol")


def test_several_together_leave_room_for_one_more() -> None:
    crowd = Crowd(SHARE)
    for number in range(8):
        come(crowd, f"mallory{number}", 10)
    assert all(not crowd.fits(f"mallory{number}") for number in range(1, 8) if crowd.total >= 100)
    assert come(crowd, "ben", 5) == 5


def test_each_has_a_bound_of_its_own() -> None:
    crowd = Crowd(Share(name="guests", total=100, each=3, key="app", over="refused"))
    assert come(crowd, "ben", 5) == 3


def test_members_counted_may_be_many_at_once() -> None:
    crowd = Crowd(SHARE)
    crowd.enter("mallory", 79)
    assert not crowd.fits("mallory", 2) and crowd.fits("ben", 20)
    crowd.leave("mallory", 79)
    assert crowd.total == 0 and crowd.fits("mallory", 80)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=400))
def test_a_crowd_counts_its_members(deeds: list[tuple[str, bool]]) -> None:
    crowd, inside = Crowd(SHARE), dict.fromkeys("abc", 0)
    for key, comes in deeds:
        if comes and crowd.fits(key):
            crowd.enter(key)
            inside[key] += 1
        elif not comes and inside[key]:
            crowd.leave(key)
            inside[key] -= 1
        assert crowd.total == sum(inside.values()) <= SHARE.total
