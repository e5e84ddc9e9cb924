from hawker.catalog.reorder_buffer import ReorderBuffer
from tests.catalog.kit import A, B, tx


def versions(pending: ReorderBuffer, version: int, epoch: int = 5) -> list[int]:
    return [found.version for found, _ in pending.follow(A, epoch, version)]


def test_reorder_buffer_releases_a_contiguous_run_in_order() -> None:
    pending = ReorderBuffer()
    for version in (5, 3, 4, 7):
        assert pending.hold(tx(version), 10)
    assert versions(pending, 1) == []
    assert versions(pending, 2) == [3, 4, 5]
    assert len(pending) == 1 and pending.bytes == 10


def test_reorder_buffer_drops_transactions_that_are_behind() -> None:
    pending = ReorderBuffer()
    pending.hold(tx(3), 10)
    assert versions(pending, 3) == []
    assert len(pending) == 0


def test_the_same_is_held_once() -> None:
    pending = ReorderBuffer()
    assert pending.hold(tx(3), 10)
    assert not pending.hold(tx(3), 10)
    assert pending.has(A, 5, 3) and not pending.has(A, 6, 3) and not pending.has(B, 5, 3)


def test_the_furthest_goes_when_there_is_too_much() -> None:
    pending = ReorderBuffer(txs=2)
    pending.hold(tx(9), 10)
    pending.hold(tx(3), 10)
    assert pending.hold(tx(5), 10)
    assert not pending.has(A, 5, 9) and pending.dropped == 1
    assert not pending.hold(tx(7), 10)


def test_bytes_are_bounded_for_each_origin_and_in_all() -> None:
    pending = ReorderBuffer(size=25, total=40)
    assert pending.hold(tx(3), 20)
    assert not pending.hold(tx(4), 20)
    assert pending.hold(tx(3, origin=B), 20)
    assert not pending.hold(tx(9, origin=B), 20)
    assert pending.bytes == 40


def test_a_newer_epoch_takes_the_place_of_an_older_one() -> None:
    pending = ReorderBuffer()
    pending.hold(tx(3), 10)
    assert pending.hold(tx(2, epoch=6), 10)
    assert not pending.hold(tx(4, epoch=5), 10)
    assert pending.epoch(A) == 6 and len(pending) == 1
    assert versions(pending, 1, epoch=5) == []
    assert versions(pending, 1, epoch=6) == [2]
    assert pending.epoch(A) == -1
