from collections import deque

from hawker.catalog.change import Delta, Op, Tx
from hawker.catalog.slices import FEWEST, SLICE_S, Slices, cut
from tests.catalog.kit import A, B, delta, op, tx


def test_a_slice_has_so_many_ops_and_never_part_of_a_transaction() -> None:
    slices, long = Slices(ops=3), tx(2, *[op(str(number)) for number in range(9)])
    ready: deque[Tx | Delta] = deque([tx(1), long, tx(1, origin=B)])
    assert slices.take(ready) == ([tx(1), long], [A, A])
    assert slices.take(ready) == ([tx(1, origin=B)], [B])


def test_a_long_delta_is_cut_between_versions() -> None:
    slices = Slices(ops=2)
    whole = delta(0, 5)
    ready: deque[Tx | Delta] = deque([whole, tx(6)])
    (first,), ended = slices.take(ready)
    assert isinstance(first, Delta) and (first.after, first.upto, first.last, ended) == (0, 2, False, [])
    (second,), _ = slices.take(ready)
    assert isinstance(second, Delta) and (second.after, second.upto, second.head) == (2, 4, 5)
    batch, ended = slices.take(ready)
    assert isinstance(batch[0], Delta) and batch[0].last and ended == [A, A]
    assert first.ops + second.ops + batch[0].ops == whole.ops


def test_a_version_is_never_cut() -> None:
    ops: tuple[Op, ...] = tuple(op(str(number)) for number in range(4))
    one = delta(0, 1)
    wide = type(one)(A, one.scope, 5, False, 0, 1, 0, tuple(type(one.ops[0])(1, each) for each in ops), True, 1)
    assert cut(wide, 2) == (wide, None)


def test_slices_learn_from_what_they_took() -> None:
    slices = Slices()
    for _ in range(20):
        slices.took(slices.ops, 2 * SLICE_S)
    assert slices.ops == FEWEST
    slices.took(slices.ops, SLICE_S / 10)
    assert slices.ops == 2 * FEWEST
    slices.took(1, SLICE_S / 10)
    assert slices.ops == 2 * FEWEST
