import pytest

from hawker.gossip.failure_detector import RoundTrip
from hawker.gossip.timing import Timing

TIMING = Timing()


@pytest.mark.parametrize(("members", "least_s"), [(1, 4), (3, 4), (10, 4), (100, 8), (1000, 12)])
def test_suspicion_grows_with_the_logarithm(members: int, least_s: float) -> None:
    assert TIMING.suspicion_s(members) == pytest.approx((least_s, least_s * 6))
    assert TIMING.suspicion_s(members, far=True) == pytest.approx((least_s * 1.5, least_s * 9))


@pytest.mark.parametrize(("members", "transmits"), [(1, 4), (3, 4), (10, 8), (99, 8), (100, 12), (1000, 16)])
def test_news_is_told_so_often(members: int, transmits: int) -> None:
    assert TIMING.transmits(members) == transmits


@pytest.mark.parametrize(("members", "needed"), [(2, 0), (3, 0), (4, 2), (100, 2)])
def test_confirmations_need_somebody_who_confirms(members: int, needed: int) -> None:
    assert TIMING.confirmations_of(members) == needed


def test_patience_follows_what_was_measured() -> None:
    trip = RoundTrip()
    assert trip.timeout_s(0.3, 0.1, 0.6) == 0.3
    for _ in range(50):
        trip.measured(0.001)
    assert trip.timeout_s(0.3, 0.1, 0.6) == 0.1
    for _ in range(50):
        trip.measured(0.05)
    assert 0.15 <= trip.timeout_s(0.3, 0.1, 0.6) < 0.2
    for _ in range(50):
        trip.measured(5.0)
    assert trip.timeout_s(0.3, 0.1, 0.6) == 0.6
    assert trip.seconds == pytest.approx(5.0, rel=0.01)
