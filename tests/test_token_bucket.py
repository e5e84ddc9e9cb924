"""Token buckets: what they let pass, and that nobody can make them grow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.api.route import Rate
from hawker.token_bucket import Allowance, TokenBucket, TokenBuckets

USUAL = Allowance(1.0, 3)


def taken(buckets: TokenBuckets, key: bytes, *moments: float) -> list[bool]:
    return [buckets.take(key, now) for now in moments]


def test_burst_passes_and_then_one_token_a_second() -> None:
    buckets = TokenBuckets(USUAL)
    assert taken(buckets, b"a", 5, 5, 5, 5, 5.9, 6, 6, 7.5, 8) == [True] * 3 + [False, False, True, False, True, True]


def test_refused_call_costs_no_token() -> None:
    buckets = TokenBuckets(USUAL)
    assert taken(buckets, b"a", *[0.0] * 50, 1.0)[-1]


def test_a_bucket_holds_no_more_than_its_burst_however_long_it_waits() -> None:
    buckets = TokenBuckets(USUAL)
    assert taken(buckets, b"a", 0, *[1e6] * 4) == [True, True, True, True, False]


def test_keys_do_not_share_a_bucket() -> None:
    buckets = TokenBuckets(USUAL)
    assert taken(buckets, b"a", 0, 0, 0, 0)[-1] is False and buckets.take(b"b", 0)


def test_a_full_bucket_is_forgotten() -> None:
    buckets = TokenBuckets(USUAL)
    for number in range(100):
        buckets.take(bytes([number]), 0.0)
    assert len(buckets) == 100
    for step in range(100):
        buckets.take(b"x", 2.0 + step)
    assert len(buckets) == 1


def test_a_flood_of_made_up_keys_takes_bounded_memory_and_locks_nobody_out() -> None:
    buckets = TokenBuckets(USUAL, most=50)
    for number in range(10_000):
        assert buckets.take(number.to_bytes(4, "big"), 0.0)
        assert len(buckets) <= 50
    assert buckets.take(b"somebody else", 0.0)


def test_bucket_in_use_outlives_a_flood_of_others() -> None:
    buckets = TokenBuckets(USUAL, most=50)
    taken(buckets, b"busy", 0.0, 0.0)
    for number in range(40):
        buckets.take(number.to_bytes(4, "big"), 0.0)
    assert taken(buckets, b"busy", 0.0, 0.0) == [True, False]


def test_the_clock_of_a_host_that_is_long_up_does_not_cost_a_token() -> None:
    buckets = TokenBuckets(Rate.LOOK.value)
    assert taken(buckets, b"a", *[31_536_000.1] * 11) == [True] * 10 + [False]


@given(st.lists(st.floats(0, 3), min_size=1, max_size=60))
def test_bucket_passes_never_more_than_the_burst_and_the_rate_allow_in_any_time(gaps: list[float]) -> None:
    buckets, now, passed = TokenBuckets(USUAL), 0.0, list[float]()
    for gap in gaps:
        now += gap
        if buckets.take(b"a", now):
            passed.append(now)
    for first, begin in enumerate(passed):
        for last, end in enumerate(passed[first:], 1):
            assert last <= USUAL.burst + (end - begin) * USUAL.per_s + 1e-3


def test_an_amount_is_taken_whole_or_not_at_all() -> None:
    buckets = TokenBuckets(Allowance(10, 20))
    assert buckets.take(b"a", 0.0, 15) and not buckets.take(b"a", 0.0, 6)
    assert buckets.wait_s(b"a", 0.0, 6) == pytest.approx(0.1) and buckets.take(b"a", 0.0, 5)
    assert buckets.take(b"b", 0.0, 50) and not buckets.take(b"b", 3.0) and buckets.take(b"b", 3.2)


def test_one_bucket_passes_its_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(Allowance(10, 20))
    assert sum(bucket.take(1, 0.0) for _ in range(30)) == 20
    assert sum(bucket.take(1, 0.5) for _ in range(30)) == 5
    assert bucket.wait_s(1, 0.5) == pytest.approx(0.1)


def test_amount_above_the_burst_passes_a_full_bucket_and_leaves_a_debt() -> None:
    bucket = TokenBucket(Allowance(10, 20))
    assert bucket.wait_s(50, 0.0) == 0.0 and bucket.take(50, 0.0)
    assert not bucket.take(1, 3.0)
    assert bucket.take(1, 3.2)
