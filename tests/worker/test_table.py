from functools import partial

import msgspec
import pytest
from anyio import create_task_group
from anyio.lowlevel import checkpoint

from hawker.clock import ManualClock
from hawker.config import MachineConfig
from hawker.errors import NotFound
from hawker.ids import AppName, MachineId, Version
from hawker.machine import State
from hawker.node import Resources
from hawker.record.app import PINNED, Pinned
from hawker.record.machine import BY_APP, BY_NAME, Previous
from hawker.store.contract import Tx
from hawker.store.memory_store import MemoryStore
from hawker.worker.changes import Changes
from hawker.worker.table import EVENTS_KEPT, VERSIONS_KEPT, VERSIONS_KEPT_BYTES, Happened, MachineTable, all_machines
from tests.worker.machines import NOW, machine

pytestmark = pytest.mark.anyio
STALL = AppName("stall")


def _append(table: MachineTable, machine_id: MachineId, happened: Happened, tx: Tx) -> None:
    table.change(tx, table.get(tx, machine_id), happened)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def table() -> MachineTable:
    return MachineTable(ManualClock(NOW), Changes())


async def test_a_machine_is_found_in_its_own_app_only(store: MemoryStore, table: MachineTable) -> None:
    record = machine()
    await store.write(lambda tx: table.insert(tx, record))
    assert table.find(store, STALL, record.id) == record
    with pytest.raises(NotFound):
        table.find(store, AppName("other"), record.id)


async def test_used_is_the_sum_of_what_machines_hold(store: MemoryStore, table: MachineTable) -> None:
    first, second = machine("1"), machine("2", holds=Resources(performance_cpus=2, memory_mib=100))
    await store.write(lambda tx: table.insert(tx, first))
    await store.write(lambda tx: table.insert(tx, second))
    assert table.used(store) == first.holds.plus(second.holds)
    await store.write(lambda tx: table.change(tx, first, holds=Resources()))
    assert table.used(store) == second.holds
    await store.write(lambda tx: table.remove(tx, second, Happened("destroy", "destroyed")))
    assert table.used(store) == Resources()


async def test_a_destroyed_machine_leaves_every_index_but_stays_readable(
    store: MemoryStore, table: MachineTable
) -> None:
    record = machine()
    await store.write(lambda tx: table.insert(tx, record))
    await store.write(lambda tx: table.remove(tx, record, Happened("destroy", "destroyed")))
    assert list(table.of_app(store, STALL)) == []
    assert store.count(BY_APP) == store.count(BY_NAME) == 0
    assert table.find(store, STALL, record.id).state is State.DESTROYED
    assert table.events(store, record.id, 1)[0].status == "destroyed"
    await store.write(lambda tx: table.forget(tx, record.id))
    assert table.lookup(store, record.id) is None and table.events(store, record.id, 5) == []


async def test_an_apps_machines_come_by_id_from_beyond_the_one_asked_for(
    store: MemoryStore, table: MachineTable
) -> None:
    others = {"app": AppName("stalls")}
    for record in (machine("b"), machine("a"), machine("c"), machine("d", **others)):
        await store.write(partial(table.insert, record=record))
    assert [record.id for record in table.of_app(store, STALL)] == ["a", "b", "c"]
    assert [record.id for record in table.of_app(store, STALL, after="a")] == ["b", "c"]


async def test_a_machine_that_goes_while_its_app_is_read_is_left_out(store: MemoryStore, table: MachineTable) -> None:
    first, second = machine("a"), machine("b")
    for record in (first, second):
        await store.write(partial(table.insert, record=record))
    reading = table.of_app(store, STALL)
    assert next(reading) == first
    await store.write(lambda tx: table.remove(tx, second, Happened("destroy", "destroyed")))
    assert list(reading) == []


async def test_events_come_newest_first_and_are_bounded(store: MemoryStore, table: MachineTable) -> None:
    record = machine()
    await store.write(lambda tx: table.insert(tx, record))
    for number in range(EVENTS_KEPT + 5):
        happened = Happened("start", f"status-{number}")
        await store.write(partial(_append, table, record.id, happened))
    events = table.events(store, record.id, 10_000)
    assert len(events) == EVENTS_KEPT == table.get(store, record.id).events
    assert events[0].status == f"status-{EVENTS_KEPT + 4}" and events[0].id == table.get(store, record.id).last_event
    assert [event.id for event in events] == sorted((event.id for event in events), reverse=True)


async def test_old_versions_are_kept_and_bounded(store: MemoryStore, table: MachineTable) -> None:
    await store.write(lambda tx: table.insert(tx, machine(version=Version("V000"))))
    for number in range(1, VERSIONS_KEPT + 3):
        record = machine(version=Version(f"V{number:03}"))
        await store.write(partial(table.add_version, record=record))
    versions = table.versions(store, MachineId("00000000000001"))
    assert len(versions) == VERSIONS_KEPT and versions[0].version == f"V{VERSIONS_KEPT + 2:03}"


async def test_large_versions_are_bounded_by_their_bytes_and_the_newest_stays(
    store: MemoryStore, table: MachineTable
) -> None:
    large = MachineConfig(image="a", env={"X": "x" * (VERSIONS_KEPT_BYTES // 4)})
    for number in range(9):
        record = machine(version=Version(f"V{number}"), config=large)
        await store.write(partial(table.add_version, record=record))
    assert [each.version for each in table.versions(store, MachineId("00000000000001"))] == ["V8", "V7", "V6"]
    larger = MachineConfig(image="a", env={"X": "x" * (VERSIONS_KEPT_BYTES + 1)})
    record = machine(version=Version("V9"), config=larger)
    await store.write(partial(table.add_version, record=record))
    assert [each.version for each in table.versions(store, MachineId("00000000000001"))] == ["V9"]


async def test_a_version_that_is_run_or_fallen_back_to_stays_though_many_are_newer(
    store: MemoryStore, table: MachineTable
) -> None:
    record, pinned = machine(version=Version("V000")), Pinned(app=STALL, sealed={"KEY": b"sealed"})
    await store.write(lambda tx: table.insert(tx, record))
    await store.write(lambda tx: tx.put(PINNED, f"{record.id}/V000", pinned))
    old = Previous(
        version=record.version, config=record.config, image=record.image, state=record.state, holds=Resources()
    )
    for number in range(1, VERSIONS_KEPT + 3):
        updated = msgspec.structs.replace(record, version=Version(f"V{number:03}"), previous=old)
        await store.write(partial(table.add_version, record=updated))
    kept = [each.version for each in table.versions(store, record.id)]
    assert len(kept) == VERSIONS_KEPT + 1 and kept[-2:] == ["V003", "V000"]
    assert store.get(PINNED, f"{record.id}/V000") == pinned
    await store.write(partial(table.add_version, record=record))
    assert table.versions(store, record.id)[-1].version == "V000", "a machine that enters with its history"


async def test_each_change_is_later_though_the_clock_was_set_back(store: MemoryStore) -> None:
    clock = ManualClock(NOW)
    table, record = MachineTable(clock, Changes()), machine()
    await store.write(lambda tx: table.insert(tx, record))
    clock.advance(-86_400)
    times = [record.updated_at]
    for _ in range(3):
        changed = await store.write(lambda tx: table.change(tx, table.get(tx, record.id)))
        times.append(changed.updated_at)
    assert times == sorted(set(times)) and times[-1] - NOW < 0.001
    clock.advance(86_401)
    assert (await store.write(lambda tx: table.change(tx, table.get(tx, record.id)))).updated_at == NOW + 1


async def test_a_version_is_greater_than_all_before_it_though_the_clock_was_set_back(store: MemoryStore) -> None:
    clock = ManualClock(NOW)
    table = MachineTable(clock, Changes())
    record = machine()
    await store.write(lambda tx: table.insert(tx, record))
    made = [record.version]
    for _ in range(4):
        made.append(table.next_version(store, record))  # the record falls back each time, as after a failed update
        await store.write(partial(table.add_version, record=msgspec.structs.replace(record, version=made[-1])))
        clock.advance(-3600)
    assert made == sorted(set(made))
    assert [version.version for version in table.versions(store, record.id)] == made[::-1]


async def test_others_run_while_all_machines_are_read(store: MemoryStore, table: MachineTable) -> None:
    def fill(tx: Tx) -> None:
        for number in range(100):
            table.insert(tx, machine(f"{number:03d}"))

    await store.write(fill)
    seen, turns = list[str](), list[int]()

    async def take_turns() -> None:
        while True:
            await checkpoint()
            turns.append(len(seen))

    async with create_task_group() as tasks:
        tasks.start_soon(take_turns)
        async for record in all_machines(store):
            seen.append(record.id)
        tasks.cancel_scope.cancel()
    assert seen == [f"{number:03d}" for number in range(100)]
    assert len(turns) >= 5 and max(turns[i + 1] - turns[i] for i in range(4)) <= 16


async def test_a_machine_that_is_gone_is_listed_in_its_own_app_only(store: MemoryStore, table: MachineTable) -> None:
    record = machine()
    await store.write(lambda tx: table.insert(tx, record))
    assert table.listed(store, STALL, record.id) == record
    await store.write(lambda tx: table.remove(tx, record, Happened("destroy", "destroyed")))
    gone = table.listed(store, STALL, record.id)
    assert gone is not None and gone.state is State.DESTROYED
    assert table.listed(store, AppName("other"), record.id) is None
