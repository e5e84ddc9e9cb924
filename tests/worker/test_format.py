"""Who may read what a data directory holds."""

from functools import partial

import pytest

from hawker.errors import CannotStart, Fault, Unavailable
from hawker.ids import NodeId
from hawker.record.machine import MACHINES
from hawker.record.node import FORMATS, NODE, Format, NodeRecord
from hawker.store.contract import Bucket, Tx
from hawker.store.memory_store import MemoryStore, StoreFaults
from hawker.worker.format import BEFORE_FORMATS, THIS, Edition, Upgrade, enter, judge

pytestmark = pytest.mark.anyio

NUMBERS = Bucket("numbers", int)


def edition(format: int, needs: int | None = None, reads: int = 0, *upgrades: Upgrade) -> Edition:
    return Edition(f"{format}.0", format, format if needs is None else needs, reads, upgrades)


def left_by(*editions: Edition) -> Format:
    found = BEFORE_FORMATS
    for each in editions:
        found = judge(found, each)
    return found


def test_a_newer_format_is_refused_with_both_versions_and_what_to_do() -> None:
    with pytest.raises(CannotStart) as refusal:
        judge(left_by(edition(3)), edition(2))
    text = str(refusal.value)
    assert "written by hawker 3.0, whose format 3 this hawker 2.0 does not know (it knows 2)" in text
    assert text.endswith("upgrade hawker, or restore a backup made before")


def test_a_newer_format_that_older_readers_understand_is_read() -> None:
    found = left_by(edition(3, needs=2))
    assert judge(found, edition(2)) == Format(number=2, hawker="2.0", needs=2, needs_hawker="3.0")
    with pytest.raises(CannotStart, match=r"hawker 3\.0, whose format 2 this hawker 1\.0"):
        judge(found, edition(1))


def test_an_older_writer_does_not_hide_what_a_newer_one_left() -> None:
    found = left_by(edition(3, needs=2), edition(2))
    with pytest.raises(CannotStart):
        judge(found, edition(1))
    assert judge(found, edition(3, needs=2)).number == 3


def test_a_format_that_is_too_old_is_refused() -> None:
    with pytest.raises(CannotStart, match=r"hawker 1\.0 in format 1, .*3\.0 reads formats from 2 on: upgrade by way"):
        judge(left_by(edition(1)), edition(3, reads=2))


def test_a_record_written_before_formats_is_read() -> None:
    assert judge(BEFORE_FORMATS, THIS).number == THIS.format


# On a store.


def doubled(tx: Tx) -> None:
    for key, number in list(tx.scan(NUMBERS)):
        tx.put(NUMBERS, key, number * 2)


def tripled(tx: Tx) -> None:
    for key, number in list(tx.scan(NUMBERS)):
        tx.put(NUMBERS, key, number * 3)


STEPS = (Upgrade(2, doubled), Upgrade(3, tripled))


def numbers(store: MemoryStore) -> list[int]:
    return [number for _, number in store.scan(NUMBERS)]


async def holding(*values: int) -> MemoryStore:
    store = MemoryStore()
    for value in values:
        await store.write(partial(_keep, value=value))
    return store


def _keep(tx: Tx, value: int) -> None:
    tx.put(NUMBERS, str(value), value)


@pytest.mark.parametrize(("before", "after"), [(1, [6, 12]), (2, [3, 6]), (3, [1, 2])])
async def test_each_step_from_the_format_that_is_there_is_taken_once(before: int, after: list[int]) -> None:
    store = await holding(1, 2)
    await enter(store, edition(before))
    for _ in range(2):
        await enter(store, edition(3, 3, 0, *STEPS))
    assert numbers(store) == after


async def test_a_crash_in_an_upgrade_leaves_all_of_it_or_nothing() -> None:
    survivor = (await holding(1)).crash(faults=StoreFaults(fail={1}))
    with pytest.raises(Unavailable, match="a fault was asked for"):
        await enter(survivor, edition(3, 3, 0, *STEPS))
    assert (numbers(survivor), survivor.get(FORMATS, "self")) == ([1], None)
    await enter(survivor, edition(3, 3, 0, *STEPS))
    assert numbers(survivor) == [6]


async def test_nothing_is_written_where_nothing_changes() -> None:
    store = MemoryStore()
    await enter(store)
    commits = store.commits
    await enter(store)
    assert store.commits == commits
    found = store.get(FORMATS, "self")
    assert found is not None and (found.number, found.hawker) == (THIS.format, THIS.hawker)


async def test_a_refused_daemon_writes_nothing() -> None:
    store = MemoryStore()
    await enter(store, edition(9))
    commits = store.commits
    with pytest.raises(CannotStart):
        await enter(store, edition(8))
    assert store.commits == commits


async def test_a_damaged_record_is_named_before_the_node_begins() -> None:
    store = MemoryStore()
    await store.write(lambda tx: tx.put(NODE, "self", NodeRecord(id=NodeId("n"), region="mad", created_at=1.0)))
    await enter(store)
    await store.write(lambda tx: tx.put(Bucket(MACHINES.name, int), "3d8f", 7))
    with pytest.raises(Fault, match=r"record '3d8f' in bucket machines of the store cannot be read .*restore a backup"):
        await enter(store)


def test_an_edition_that_cannot_read_itself_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        edition(1, needs=2)
