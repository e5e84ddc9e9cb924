from hawker.clock import ManualClock
from hawker.proof.violation import Invariant, Violation
from hawker.sim.harness.trace import RunLedger, Speaker, Trace


def test_the_digest_is_of_every_line_kept_or_not() -> None:
    kept, short, other = Trace(True), Trace(False), Trace(False)
    for trace in (kept, short):
        trace.add(1.5, Speaker.COMMIT, "1 durable")
        trace.add(61.25, Speaker.CLIENT, "ann: create")
    other.add(61.25, Speaker.CLIENT, "ann: create")
    assert kept.digest == short.digest != other.digest
    assert len(kept.lines) == 2 and len(short.lines) == 1


def test_a_line_says_minutes_and_seconds() -> None:
    trace = Trace()
    trace.add(61.25, Speaker.CLIENT, "ann: create")
    assert str(trace.lines[0]) == "    1:01.250000  client  ann: create"


GONE = Violation(Invariant.KEPT, "m1", "it is gone")


def test_finding_is_told_once_and_raises_alarm() -> None:
    trace, alarms = Trace(), list[str]()
    ledger = RunLedger(ManualClock(), trace, lambda: alarms.append("alarm"))
    ledger.find([])
    assert not alarms
    ledger.find([GONE, GONE])
    assert ledger.found == [GONE] and len(trace.lines) == 1 and alarms == ["alarm"]
