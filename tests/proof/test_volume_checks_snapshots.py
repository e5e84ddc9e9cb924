"""Facts about what is found of snapshots, one violation at a time."""

from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace

from hawker.ids import AppName, SnapshotId, VolumeId
from hawker.proof.host_state import HostState
from hawker.proof.volume_checks import SnapshotPromises, of_snapshots, snapshots_at_rest
from hawker.record.volume import (
    GONE_SNAPSHOTS,
    SNAPSHOTS,
    SNAPSHOTS_BY_VOLUME,
    SnapshotKey,
    SnapshotRecord,
    SnapshotStatus,
)
from hawker.store.contract import Tx
from hawker.store.memory_store import MemoryStore

pytestmark = pytest.mark.anyio
ID, OTHER = SnapshotId("vs_0000000000000001"), SnapshotId("vs_0000000000000002")
RECORD = SnapshotRecord(
    id=ID,
    volume=VolumeId("vol_0000000000000001"),
    app=AppName("shop"),
    status=SnapshotStatus.CREATED,
    volume_gb=1,
    retention_days=5,
    kept_until=500.0,
    created_at=0.0,
)
HOST = HostState(running={}, snapshots=frozenset({ID}))


def put(tx: Tx, record: SnapshotRecord) -> None:
    tx.put(SNAPSHOTS, record.id, record)
    tx.put(SNAPSHOTS_BY_VOLUME, f"{record.volume}/{record.id}", SnapshotKey(id=record.id))


async def store_of(*writes: Callable[[Tx], None]) -> MemoryStore:
    store = MemoryStore()
    for write in writes:
        await store.write(write)
    return store


def with_status(status: SnapshotStatus) -> SnapshotRecord:
    return msgspec.structs.replace(RECORD, status=status)


async def test_sound_snapshots_have_no_finding() -> None:
    store = await store_of(lambda tx: put(tx, RECORD))
    assert [*of_snapshots(store), *snapshots_at_rest(store, HOST)] == []
    assert list(snapshots_at_rest(store, HostState(running={}))) == [], "where nobody looked nothing is claimed"


def both(tx: Tx) -> None:
    put(tx, RECORD)
    tx.put(GONE_SNAPSHOTS, ID, RECORD)


def two(tx: Tx) -> None:
    for key in (ID, OTHER):
        put(tx, msgspec.structs.replace(with_status(SnapshotStatus.RUNNING), id=key))


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda tx: tx.put(SNAPSHOTS, ID, RECORD), "the records disagree"),
        (both, "both there and at its end"),
        (two, "two snapshots under way"),
    ],
)
async def test_a_store_that_contradicts_itself_is_found(write: Callable[[Tx], None], says: str) -> None:
    [found] = of_snapshots(await store_of(write))
    assert says in str(found)


@pytest.mark.parametrize(
    ("status", "host", "says"),
    [
        (SnapshotStatus.RUNNING, HOST, "nothing is at it"),
        (SnapshotStatus.CREATED, replace(HOST, snapshots=frozenset()), "its file is not there"),
        (SnapshotStatus.FAILED, HOST, "failed, and its file is there"),
        (SnapshotStatus.CREATED, replace(HOST, snapshots=frozenset({ID, OTHER})), "no record"),
        (SnapshotStatus.CREATED, replace(HOST, snapshots_retaken=frozenset({ID})), "taken anew"),
    ],
)
async def test_a_host_that_disagrees_is_found(status: SnapshotStatus, host: HostState, says: str) -> None:
    [found] = snapshots_at_rest(await store_of(lambda tx: put(tx, with_status(status))), host)
    assert says in str(found)


async def test_a_file_that_is_being_removed_is_no_stray() -> None:
    assert list(snapshots_at_rest(await store_of(lambda tx: tx.put(GONE_SNAPSHOTS, ID, RECORD)), HOST)) == []


async def test_a_promise_holds_until_its_days_are_over() -> None:
    promises, empty = SnapshotPromises(), await store_of()
    promises.promised(ID, until=500.0)
    assert "acknowledged until 500" in str(next(promises.broken(empty, now=499.0)))
    assert list(promises.broken(empty, now=500.0)) == []
    assert list(promises.broken(await store_of(lambda tx: put(tx, RECORD)), now=0.0)) == []
