from hawker.clock import ManualClock
from hawker.ids import MachineId
from hawker.proof.violation import Invariant, Violation
from hawker.sim.fleet.ledger import Counted, FleetLedger, Ordered
from hawker.sim.harness.trace import Speaker, Trace


def test_promised_machines_are_those_answered_and_not_destroyed() -> None:
    ledger = FleetLedger(ManualClock(), Trace())
    for label, machine, destroyed in (("a", "m1", False), ("b", "m2", True), ("c", None, False)):
        order = Ordered(label, "app", None, None, MachineId(machine) if machine else None, destroyed)
        ledger.orders[label] = order
    ledger.counted["d"] = Counted("d", "app", None, 2, False, (MachineId("m4"), MachineId("m5")))
    assert [(each.order, each.machine) for each in ledger.promised] == [("a", "m1"), ("d", "m4"), ("d", "m5")]


def test_the_first_machine_that_has_spares_is_known_with_them() -> None:
    ledger = FleetLedger(ManualClock(), Trace())
    assert ledger.spares() == (None, [])
    ledger.orders["a"] = Ordered("a", "app", "k", None, MachineId("m1"))
    ledger.orders["b"] = Ordered("b", "app", "k", MachineId("m1"), MachineId("m2"))
    ledger.orders["c"] = Ordered("c", "app", "k", MachineId("m9"), MachineId("m3"))
    assert ledger.spares() == ("m1", ["m2"])


def test_a_finding_is_told_once() -> None:
    trace = Trace()
    ledger = FleetLedger(ManualClock(), trace)
    for _ in range(2):
        ledger.find([Violation(Invariant.KEPT, "m1", "it is gone")])
    assert [line.kind for line in trace.lines] == [Speaker.FOUND] and len(ledger.found) == 1
