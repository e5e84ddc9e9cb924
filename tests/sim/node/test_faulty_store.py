from collections.abc import Callable
from typing import Any

import anyio
import pytest

from hawker.errors import Unavailable
from hawker.sim.harness.loop import LoopClock
from hawker.sim.harness.trace import Trace
from hawker.sim.node.faulty_store import DiskFaults, FaultyStore
from hawker.store.contract import Bucket, Durability, Tx
from hawker.store.memory_store import MemoryStore

pytestmark = pytest.mark.anyio
NUMBERS = Bucket("numbers", int)


def put(key: str, call: Callable[[], None] | None = None) -> Callable[[Tx], None]:
    def apply(tx: Tx) -> None:
        tx.put(NUMBERS, key, 1)
        if call is not None:
            tx.on_commit(call)

    return apply


def disk_faults(**how: Any) -> DiskFaults:
    made = DiskFaults()
    for name, value in how.items():
        assert hasattr(made, name)
        setattr(made, name, value)
    return made


def disk(disk_faults: DiskFaults, heard: list[str] | None = None) -> FaultyStore:
    touched: list[str] = [] if heard is None else heard
    return FaultyStore(MemoryStore(), LoopClock(), Trace(), disk_faults, touched.append)


async def test_commit_is_told_and_can_be_read() -> None:
    heard: list[str] = []
    store = disk(DiskFaults(), heard)
    await store.write(put("a"), Durability.ORDERED)
    assert store.get(NUMBERS, "a") == 1 and store.commits == 1 and heard == ["numbers/a"]


async def test_a_full_disk_refuses_until_it_has_room() -> None:
    store = disk(disk_faults(full_until=5.0 + LoopClock().monotonic()))
    with pytest.raises(Unavailable, match="full"):
        await store.write(put("a"))
    await LoopClock().sleep(6)
    await store.write(put("a"))


async def test_a_failing_disk_fails_now_and_then_and_changes_nothing() -> None:
    store = disk(disk_faults(failing_until=1e12, fails_every=2))
    await store.write(put("a"))
    with pytest.raises(Unavailable, match="I/O"):
        await store.write(put("b"))
    assert store.get(NUMBERS, "b") is None


async def test_a_slow_disk_takes_its_time() -> None:
    store, began = disk(disk_faults(slow_until=1e12, delay_s=3.0)), LoopClock().monotonic()
    await store.write(put("a"))
    assert LoopClock().monotonic() - began == 3.0


async def test_after_the_last_commit_nobody_hears_of_it() -> None:
    heard: list[str] = []
    store = disk(disk_faults(stops_in=2))
    await store.write(put("a", lambda: heard.append("a")))
    with anyio.move_on_after(5) as scope:
        await store.write(put("b", lambda: heard.append("b")))
    assert scope.cancelled_caught and store.frozen.is_set()
    assert heard == ["a"] and store.get(NUMBERS, "b") == 1
