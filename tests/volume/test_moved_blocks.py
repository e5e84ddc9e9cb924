"""Blocks that two nodes compare and exchange, in real files."""

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hawker.host.changed_blocks import BLOCK_BYTES, BlockRange, spans_of
from hawker.volume.moved_blocks import (
    Digests,
    blocks_in,
    differing,
    digests_of,
    from_block,
    groups,
    read_blocks,
    union,
    write_blocks,
)

SETS = st.sets(st.integers(0, 200))


def within(spans: tuple[BlockRange, ...]) -> list[int]:
    return [block for span in spans for block in range(span.first, span.end)]


@given(SETS, st.integers(0, 210))
def test_the_rest_of_spans_is_all_that_lies_later(blocks: set[int], begin: int) -> None:
    assert within(from_block(spans_of(blocks), begin)) == sorted(each for each in blocks if each >= begin)


@given(SETS, st.integers(1, 70))
def test_groups_have_every_block_once_in_order_and_no_more_than_asked(blocks: set[int], most: int) -> None:
    found = list(groups(spans_of(blocks), most))
    assert [block for group in found for block in within(group)] == sorted(blocks)
    assert all(len(within(group)) == most for group in found[:-1])
    assert all(0 < len(within(group)) <= most for group in found)


@given(SETS, SETS)
def test_a_union_has_the_blocks_of_both_in_as_few_spans_as_there_can_be(one: set[int], other: set[int]) -> None:
    assert union(spans_of(one), spans_of(other)) == spans_of(one | other)


def test_blocks_that_one_side_alone_has_or_has_otherwise_differ_as_far_as_both_answered() -> None:
    ours, theirs = Digests(9, {1: b"a", 2: b"b", 8: b"x"}), Digests(8, {1: b"a", 2: b"c", 3: b"d"})
    assert differing([BlockRange(0, 9)], ours, theirs) == (8, {2, 3})


def made(file: Path, **blocks: bytes) -> Path:
    with file.open("wb") as opened:
        opened.truncate(40 * BLOCK_BYTES + 512)
        for place, data in blocks.items():
            opened.seek(int(place.removeprefix("at_")) * BLOCK_BYTES)
            opened.write(data)
    return file


def test_digests_stop_at_their_bound_and_go_on_from_there(tmp_path: Path) -> None:
    file = made(tmp_path / "f", at_1=b"a" * 3 * BLOCK_BYTES, at_20=b"b", at_40=b"end")
    whole = [BlockRange(0, blocks_in(file.stat().st_size))]
    assert whole[0].count == 41
    first = digests_of(file, whole, most=2)
    assert first.upto == 3 and set(first.of) == {1, 2}
    rest = digests_of(file, from_block(whole, first.upto))
    assert rest.upto == 41 and set(rest.of) == {3, 20, 40}
    assert digests_of(file, [BlockRange(4, 10), BlockRange(20, 1)]).of == {20: rest.of[20]}


def test_zeros_have_no_digest_whether_they_are_stored_or_not(tmp_path: Path) -> None:
    stored, holes = made(tmp_path / "a", at_3=bytes(BLOCK_BYTES)), made(tmp_path / "b")
    span = [BlockRange(0, 41)]
    assert digests_of(stored, span) == digests_of(holes, span) == Digests(41, {})


def test_blocks_read_here_and_written_there_are_the_same(tmp_path: Path) -> None:
    source = made(tmp_path / "a", at_2=os.urandom(2 * BLOCK_BYTES), at_40=b"end")
    target = made(tmp_path / "b", at_1=b"old", at_3=b"old", at_30=b"kept")
    spans = [BlockRange(1, 3), BlockRange(40, 1)]
    write_blocks(target, spans, read_blocks(source, spans))
    assert target.stat().st_size == source.stat().st_size
    assert digests_of(target, [BlockRange(0, 30)]) == digests_of(source, [BlockRange(0, 30)])
    assert read_blocks(target, [BlockRange(30, 1)])[30].startswith(b"kept")
    assert read_blocks(target, [BlockRange(40, 1)]) == read_blocks(source, [BlockRange(40, 1)])
