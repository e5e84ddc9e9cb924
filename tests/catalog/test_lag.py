from hawker.catalog.lag import Lag
from tests.catalog.kit import delta, tx


def test_lag_is_from_the_owners_commit_to_here() -> None:
    lag = Lag()
    assert lag.percentile(0.99) is None
    lag.note([delta(0, 1)], 50.0)
    assert lag.percentile(0.99) is None
    lag.note([tx(number, at=100.0 - number) for number in range(100)], 100.0)
    assert (lag.percentile(0.5), lag.percentile(0.99)) == (50.0, 99.0)


def test_an_owner_whose_clock_is_ahead_is_not_early() -> None:
    lag = Lag()
    lag.note([tx(1, at=500.0)], 100.0)
    assert lag.percentile(0.99) == 0.0
