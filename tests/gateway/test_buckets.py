"""Token buckets: what they let pass, and that nobody can make them grow."""

from hypothesis import given
from hypothesis import strategies as st

from hawker.api.rate import Allowance, Rate
from hawker.gateway.buckets import Buckets

USUAL = Allowance(1.0, 3)


def taken(buckets: Buckets, key: bytes, *moments: float) -> list[bool]:
    return [buckets.take(key, now) for now in moments]


def test_a_burst_passes_and_then_one_a_second() -> None:
    buckets = Buckets(USUAL)
    assert taken(buckets, b"a", 5, 5, 5, 5, 5.9, 6, 6, 7.5, 8) == [True] * 3 + [False, False, True, False, True, True]


def test_a_refused_call_costs_nothing() -> None:
    buckets = Buckets(USUAL)
    assert taken(buckets, b"a", *[0.0] * 50, 1.0)[-1]


def test_a_bucket_holds_no_more_than_its_burst_however_long_it_waits() -> None:
    buckets = Buckets(USUAL)
    assert taken(buckets, b"a", 0, *[1e6] * 4) == [True, True, True, True, False]


def test_keys_do_not_share_a_bucket() -> None:
    buckets = Buckets(USUAL)
    assert taken(buckets, b"a", 0, 0, 0, 0)[-1] is False and buckets.take(b"b", 0)


def test_a_full_bucket_is_forgotten() -> None:
    buckets = Buckets(USUAL)
    for number in range(100):
        buckets.take(bytes([number]), 0.0)
    assert len(buckets) == 100
    for step in range(100):
        buckets.take(b"x", 2.0 + step)
    assert len(buckets) == 1


def test_a_flood_of_made_up_keys_takes_bounded_memory_and_locks_nobody_out() -> None:
    buckets = Buckets(USUAL, most=50)
    for number in range(10_000):
        assert buckets.take(number.to_bytes(4, "big"), 0.0)
        assert len(buckets) <= 50
    assert buckets.take(b"somebody else", 0.0)


def test_whoever_is_in_use_outlives_a_flood_of_others() -> None:
    buckets = Buckets(USUAL, most=50)
    taken(buckets, b"busy", 0.0, 0.0)
    for number in range(40):
        buckets.take(number.to_bytes(4, "big"), 0.0)
    assert taken(buckets, b"busy", 0.0, 0.0) == [True, False]


def test_the_clock_of_a_host_that_is_long_up_does_not_cost_a_token() -> None:
    buckets = Buckets(Rate.LOOK.value)
    assert taken(buckets, b"a", *[31_536_000.1] * 11) == [True] * 10 + [False]


@given(st.lists(st.floats(0, 3), min_size=1, max_size=60))
def test_never_more_than_the_burst_and_the_rate_allow_in_any_time(gaps: list[float]) -> None:
    buckets, now, passed = Buckets(USUAL), 0.0, list[float]()
    for gap in gaps:
        now += gap
        if buckets.take(b"a", now):
            passed.append(now)
    for first, begin in enumerate(passed):
        for last, end in enumerate(passed[first:], 1):
            assert last <= USUAL.burst + (end - begin) * USUAL.per_s + 1e-3
