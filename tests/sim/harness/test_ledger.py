from hawker.clock import ManualClock
from hawker.proof.violation import Invariant, Violation
from hawker.sim.harness.ledger import RunLedger
from hawker.sim.harness.trace import Trace

GONE = Violation(Invariant.KEPT, "m1", "it is gone")


def test_finding_is_told_once_and_raises_alarm() -> None:
    trace, alarms = Trace(), list[str]()
    ledger = RunLedger(ManualClock(), trace, lambda: alarms.append("alarm"))
    ledger.find([])
    assert not alarms
    ledger.find([GONE, GONE])
    assert ledger.found == [GONE] and len(trace.lines) == 1 and alarms == ["alarm"]
