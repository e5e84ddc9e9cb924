"""Where runs are kept: lines, indexes, what is dropped and what is not."""

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from hawker.errors import Conflict
from hawker.fsm import journal
from hawker.fsm.contract import Resource
from hawker.fsm.run import Run, State, StepRecord, StepStatus
from hawker.ids import RunId
from hawker.store.contract import Tx
from hawker.store.memory_store import MemoryStore
from tests.fsm.serving import THING
from tests.fsm.test_transition import run_at

pytestmark = pytest.mark.anyio


def run(run_id: str, state: State = State.QUEUED, **fields: Any) -> Run:
    return replace(run_at("a", state), id=RunId(run_id), **fields)


def ended(run_id: str, at: float) -> Run:
    return run(run_id, State.DONE, ended_at=at)


def line(number: int = 1) -> StepRecord:
    return StepRecord(step="a", attempt=number, outcome=StepStatus.DONE, started_at=1.0, ended_at=2.0)


def keep_ended(tx: Tx, each: Run) -> None:
    journal.add(tx, each)
    journal.record(tx, each, line())
    journal.close(tx, each)


async def test_a_line_goes_from_one_run_to_the_next() -> None:
    def apply(tx: Tx) -> list[object]:
        for name in ("1", "2", "3"):
            journal.add(tx, run(name))
        first = [journal.join_line(tx, run(name)) for name in ("1", "2", "3", "1", "2")]
        out_of_turn, heir = journal.leave_line(tx, run("2")), journal.leave_line(tx, run("1"))
        return [*first, out_of_turn, heir and heir.id, journal.leave_line(tx, run("3"))]

    store = MemoryStore()
    assert await store.write(apply) == [True, False, False, True, False, None, "3", None]
    assert store.count(journal.LINES) == 0


async def test_an_heir_takes_over_its_place_in_the_line() -> None:
    def apply(tx: Tx) -> Run | None:
        for name in ("1", "2"):
            journal.add(tx, run(name))
            journal.join_line(tx, run(name))
        journal.add(tx, run("3"))
        journal.take_over(tx, run("1"), run("3"))
        assert journal.leave_line(tx, run("1")) is None
        return journal.active(tx, THING)

    active = await MemoryStore().write(apply)
    assert active is not None and active.id == "3"


async def test_a_full_line_is_a_conflict() -> None:
    def apply(tx: Tx) -> None:
        for number in range(journal.LINE_LIMIT + 1):
            journal.join_line(tx, run(str(number)))

    with pytest.raises(Conflict):
        await MemoryStore().write(apply)


async def test_closing_and_reopening_keep_one_copy() -> None:
    store = MemoryStore()
    await store.write(lambda tx: keep_ended(tx, ended("1", 5.0)))
    assert (store.count(journal.OPEN), store.count(journal.CLOSED)) == (0, 1)
    await store.write(lambda tx: journal.reopen(tx, run("1")))
    assert (store.count(journal.OPEN), store.count(journal.CLOSED)) == (1, 0)
    found = journal.find(store, RunId("1"))
    assert found is not None and found.state is State.QUEUED


async def test_history_is_in_order_and_of_its_run_only() -> None:
    def apply(tx: Tx) -> None:
        for number in range(12):
            journal.record(tx, run("1", records=number), line(number + 1))
        journal.record(tx, run("11"), line())

    store = MemoryStore()
    await store.write(apply)
    assert [each.attempt for each in journal.history(store, RunId("1"))] == list(range(1, 13))


async def test_trimming_drops_the_oldest_ended_runs_of_the_resource() -> None:
    other = Resource(kind="thing", id="a")

    def apply(tx: Tx) -> None:
        for name in ("1", "3", "4", "5"):
            keep_ended(tx, ended(name, 5.0))
        journal.add(tx, run("2"))
        keep_ended(tx, replace(ended("0", 5.0), resource=other))
        journal.trim(tx, THING, keep=2)

    store = MemoryStore()
    await store.write(apply)
    assert [each.id for each in journal.newest(store)] == ["5", "4", "2", "0"]
    assert journal.history(store, RunId("1")) == []
    assert [each.id for each in journal.newest(store, other)] == ["0"]


async def test_only_runs_that_ended_by_the_moment_are_old() -> None:
    store = MemoryStore()
    for name, at in (("1", 10.0), ("2", 30.0), ("3", 20.0)):
        await store.write(partial(keep_ended, each=ended(name, at)))
    assert journal.ended_before(store, THING.kind, 20.0, limit=10) == ["1", "3"]
    assert journal.ended_before(store, THING.kind, 20.0, limit=1) == ["1"]
    assert journal.ended_before(store, "other", 20.0, limit=10) == []
    await store.write(lambda tx: journal.drop_all(tx, [RunId("1"), RunId("3"), RunId("9")]))
    assert [each.id for each in journal.newest(store)] == ["2"]


async def test_an_unended_run_is_never_dropped() -> None:
    store = MemoryStore()
    await store.write(lambda tx: journal.add(tx, run("1")))
    await store.write(lambda tx: journal.drop(tx, RunId("1")))
    assert journal.find(store, RunId("1")) is not None


async def test_the_newest_id_is_of_open_and_closed_runs() -> None:
    store = MemoryStore()
    assert journal.newest_id(store) == ""
    await store.write(lambda tx: journal.add(tx, run("1")))
    await store.write(lambda tx: keep_ended(tx, ended("2", 5.0)))
    assert journal.newest_id(store) == "2"


async def test_open_runs_are_counted_without_the_rest_of_them() -> None:
    store = MemoryStore()
    await store.write(partial(journal.add, run=run("1", State.RUNNING)))
    await store.write(partial(journal.add, run=run("2", State.STUCK)))
    await store.write(partial(keep_ended, each=ended("3", 1.0)))
    assert [(each.id, each.state) for each in journal.open_states(store)] == [("1", State.RUNNING), ("2", State.STUCK)]
