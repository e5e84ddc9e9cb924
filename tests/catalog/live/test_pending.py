from hawker.catalog.contract import Touched
from hawker.catalog.live.pending import MOST_KEYS, Pending


def _touched(table: str, *keys: int) -> Touched:
    return Touched(tables={table: frozenset((key,) for key in keys)})


def test_keys_gather_until_they_are_taken() -> None:
    pending = Pending()
    pending.add(_touched("Machines", 1, 2))
    pending.add(_touched("machines", 2, 3))
    assert pending.count == 3
    batch = pending.take()
    assert batch.tables == {"machines": {(1,), (2,), (3,)}}
    assert not batch.everything
    assert pending.take().empty


def test_too_many_keys_are_everything() -> None:
    pending = Pending()
    pending.add(_touched("machines", *range(MOST_KEYS + 1)))
    batch = pending.take()
    assert batch.everything
    assert batch.tables == {}
    assert not batch.empty


def test_everything_stays_everything() -> None:
    pending = Pending()
    pending.add(Touched(tables={}, everything=True))
    pending.add(_touched("machines", 1))
    assert pending.take() == type(pending.take())({}, True)
