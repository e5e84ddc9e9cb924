"""Destroyed machines: what is read of them, and which are forgotten."""

from typing import Any

import msgspec
import pytest
from anyio import create_task_group
from anyio.lowlevel import checkpoint

from hawker.ids import AppName, MachineId, OrderId
from hawker.machine import State
from hawker.record.machine import DESTROYED, MachineRecord
from hawker.store.contract import Bucket, Reader, Tx
from hawker.store.memory_store import MemoryStore
from hawker.worker.reconcile.gone import (
    KEPT_BYTES_OF_APP,
    KEPT_OF_APP,
    UNCONFIRMED,
    GoneHead,
    GoneMachine,
    GoneMachines,
    heads,
    outlived,
)
from tests.worker.machines import machine

pytestmark = pytest.mark.anyio
WEB, LAB = AppName("web"), AppName("lab")


def gone_record(number: int, app: AppName = WEB) -> MachineRecord:
    made = machine(f"{number:014x}", app=app, order=OrderId(f"order-{number}"))
    return msgspec.structs.replace(made, state=State.DESTROYED, updated_at=float(number))


async def store_of(count: int) -> MemoryStore:
    store = MemoryStore()

    def apply(tx: Tx) -> None:
        for number in range(count):
            record = gone_record(number)
            tx.put(DESTROYED, record.id, record)

    await store.write(apply)
    return store


class CountedReader:
    """Counts the values that are read."""

    def __init__(self, inner: Reader) -> None:
        self._inner = inner
        self.scan, self.count, self.sizes = inner.scan, inner.count, inner.sizes
        self.read = 0

    def get(self, bucket: Bucket[Any], key: str) -> Any:
        self.read += 1
        return self._inner.get(bucket, key)


async def test_destroyed_machines_are_read_once() -> None:
    store, gone = await store_of(3), GoneMachines()
    reader = CountedReader(store)
    found = await gone.read(reader)
    assert [each.head for each in found.values()] == [head for _, head in heads(store)]
    assert found[gone_record(1).id].head == GoneHead(app=WEB, order=OrderId("order-1"), updated_at=1.0)
    assert reader.read == 3
    await store.write(lambda tx: tx.delete(DESTROYED, gone_record(1).id))
    await store.write(lambda tx: tx.put(DESTROYED, gone_record(7).id, gone_record(7)))
    assert set(await gone.read(reader)) == {gone_record(number).id for number in (0, 2, 7)}
    assert reader.read == 4


async def test_others_run_while_destroyed_machines_are_read() -> None:
    store, gone, turns = await store_of(100), GoneMachines(), 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await checkpoint()
            turns += 1

    async with create_task_group() as tasks:
        tasks.start_soon(take_turns)
        await gone.read(store)
        tasks.cancel_scope.cancel()
    assert turns >= 5


def gone(count: int, app: AppName = WEB, size_bytes: int = 1, since: int = 0) -> dict[MachineId, GoneMachine]:
    return {
        MachineId(f"{app}-{number}"): GoneMachine(GoneHead(app=app, updated_at=float(number)), size_bytes)
        for number in range(since, since + count)
    }


def forgotten(machines: dict[MachineId, GoneMachine], oldest: float = 0.0, *, confirmed: bool = True) -> list[str]:
    return list(outlived(machines, {WEB, LAB}, oldest, lambda _: confirmed))


def test_the_oldest_beyond_the_number_of_an_app_are_forgotten_and_no_others() -> None:
    assert forgotten(gone(KEPT_OF_APP) | gone(5, LAB)) == []
    assert forgotten(gone(KEPT_OF_APP + 2) | gone(5, LAB)) == ["web-0", "web-1"]


def test_the_oldest_beyond_the_bytes_of_an_app_are_forgotten() -> None:
    assert forgotten(gone(6, size_bytes=KEPT_BYTES_OF_APP // 4)) == ["web-0", "web-1"]


def test_machines_of_removed_apps_count_as_one_apps() -> None:
    machines = {
        machine_id: each
        for number in range(KEPT_OF_APP + 1)
        for machine_id, each in gone(1, AppName(f"brief-{number}"), since=number).items()
    }
    assert forgotten(machines) == ["brief-0-0"]


def test_machines_destroyed_long_ago_are_forgotten() -> None:
    assert forgotten(gone(3), oldest=2.0) == ["web-0", "web-1"]


def test_histories_that_the_archive_has_not_confirmed_are_kept_within_bounds() -> None:
    size_bytes = KEPT_BYTES_OF_APP // 2
    assert forgotten(gone(2 * UNCONFIRMED, size_bytes=size_bytes), oldest=9.0, confirmed=False) == []
    assert forgotten(gone(2 * UNCONFIRMED + 1, size_bytes=size_bytes), confirmed=False) == ["web-0"]
