from hawker.catalog.bucket import Bucket
from hawker.clock import ManualClock


def test_a_burst_goes_through_and_then_so_much_a_second() -> None:
    clock = ManualClock()
    bucket = Bucket(clock, per_s=10, burst=20)
    assert sum(bucket.take(1) for _ in range(30)) == 20
    clock.advance(0.5)
    assert sum(bucket.take(1) for _ in range(30)) == 5
    assert 0.09 < bucket.wait_s(1) <= 0.1


def test_amount_larger_than_the_burst_leaves_a_debt() -> None:
    clock = ManualClock()
    bucket = Bucket(clock, per_s=10, burst=20)
    assert bucket.take(50)
    clock.advance(3)
    assert not bucket.take(1)
    clock.advance(0.2)
    assert bucket.take(1)
