import pytest

from hawker.ids import MachineId
from hawker.node import Resources
from hawker.proof.violation import Invariant, Violation
from hawker.record.capacity import USED
from hawker.sim.harness.loop import LoopClock
from hawker.sim.harness.trace import Speaker, Trace
from hawker.sim.worker.ledger import WorkerLedger
from hawker.store.memory_store import MemoryStore

pytestmark = pytest.mark.anyio


async def test_finding_is_said_once_and_raises_the_alarm() -> None:
    rung: list[str] = []
    trace = Trace()
    ledger = WorkerLedger(LoopClock(), trace, lambda: rung.append("rung"))
    ledger.find([])
    assert not rung
    violation = Violation(Invariant.KEPT, "m", "is forgotten")
    ledger.find([violation, violation])
    assert ledger.found == [violation] and [line.kind for line in trace.lines] == [Speaker.FOUND] and rung


async def test_the_store_is_looked_at_only_when_something_was_touched() -> None:
    ledger, store = WorkerLedger(LoopClock(), Trace(), lambda: None), MemoryStore()
    await store.write(lambda tx: tx.put(USED, "all", Resources(shared_cpus=1)))
    ledger.check(store)
    assert ledger.found == []
    ledger.touched.add(MachineId("all"))
    ledger.check(store)
    assert [violation.invariant for violation in ledger.found] == [Invariant.CAPACITY]
