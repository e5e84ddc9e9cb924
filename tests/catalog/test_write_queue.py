from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from hawker.catalog.change import Scope
from hawker.catalog.contract import Committed, LocalTransaction, Statement
from hawker.catalog.memory_storage import MemoryStorage, MemoryTable, upsert
from hawker.catalog.replica import Replica
from hawker.catalog.write_queue import GROUP_CALLS, MAX_WAITING, QueuedCall, QueuedTransaction, WriteQueue, run_all
from hawker.clock import ManualClock, SystemClock
from hawker.errors import BadRequest, HawkerError, Unavailable
from hawker.ids import NodeId

ME = NodeId("aaaaaaaa")
SCHEMA = {"machines": MemoryTable(Scope.REGION, ("node", "id"), ("state",))}


class Grouped(MemoryStorage):
    """Notes how many were committed together. `lost`: the disk is full."""

    def __init__(self) -> None:
        super().__init__(ME, SCHEMA, ManualClock())
        self.groups: list[int] = []
        self.lost = False
        for scope in Scope:
            self.renew(scope, 1)

    def commit_all(self, group: Sequence[LocalTransaction]) -> Sequence[Committed | HawkerError]:
        self.groups.append(len(group))
        if self.lost:
            raise Unavailable("the disk is full")
        return super().commit_all(group)


def write(storage: Grouped, name: str, text: str = "", told: list[Committed] | None = None) -> QueuedTransaction:
    statement = Statement(query=text) if text else upsert("machines", {"node": ME, "id": name, "state": "started"})
    after = told.append if told is not None else lambda committed: None
    return QueuedTransaction(storage, LocalTransaction(statements=(statement,), at=1.0), after)


def test_transactions_that_follow_each_other_are_committed_together() -> None:
    storage = Grouped()
    seen: list[int] = []
    look = QueuedCall(lambda: seen.append(len(storage.groups)))
    calls: list[QueuedCall[Any]] = [write(storage, "1"), write(storage, "2"), look, write(storage, "3")]
    run_all(calls)
    assert (storage.groups, seen) == ([2, 1], [1])
    assert all(call.ran for call in calls)


async def test_one_that_fails_fails_alone() -> None:
    storage, told = Grouped(), list[Committed]()
    calls = [write(storage, "1", told=told), write(storage, "2", "nonsense", told), write(storage, "3", told=told)]
    run_all(calls)
    for call in calls:
        call.end()
    assert [committed.txs[0].version for committed in told] == [1, 2]
    with pytest.raises(BadRequest):
        await calls[1].wait()
    assert await calls[2].wait() is told[1]


async def test_when_nothing_can_be_written_all_are_told() -> None:
    storage = Grouped()
    storage.lost = True
    calls = [write(storage, "1"), write(storage, "2")]
    run_all(calls)
    for call in calls:
        call.end()
        with pytest.raises(Unavailable):
            await call.wait()


async def test_a_call_whose_turn_was_called_off_is_told_so() -> None:
    call = write(Grouped(), "1")
    call.end()
    with pytest.raises(Unavailable, match="stopping"):
        await call.wait()


def test_a_turn_of_the_queue_has_an_end() -> None:
    queue = WriteQueue()
    for _ in range(GROUP_CALLS + 1):
        queue.put(QueuedCall(lambda: None))
    assert [len(queue.take()), len(queue.take()), len(queue.take())] == [GROUP_CALLS, 1, 0]


async def test_a_full_queue_refuses_calls_and_a_stopped_one_ends_them() -> None:
    queue = WriteQueue()
    calls = [QueuedCall(lambda: None) for _ in range(MAX_WAITING)]
    for call in calls:
        queue.put(call)
    with pytest.raises(Unavailable, match="wait already"):
        queue.put(QueuedCall(lambda: None))
    queue.stop()
    with pytest.raises(Unavailable, match="stopping"):
        await calls[-1].wait()


async def test_transactions_that_come_while_the_disk_is_busy_share_a_commit() -> None:
    async def send(name: str) -> None:
        await replica.transact([upsert("machines", {"node": ME, "id": name, "state": "started"})])

    async def ask(*_: object) -> bytes:
        return b""

    storage = Grouped()
    replica = Replica(ME, "mad", storage, SystemClock(), send=lambda *_: None, ask=ask)
    async with replica.running(), anyio.create_task_group() as tasks:
        for number in range(16):
            tasks.start_soon(send, str(number))
    assert sum(storage.groups) == 16
    assert len(storage.groups) < 16
