"""Flows of datagrams: what a ledger that hears of machines and clients alone finds."""

import pytest

from hawker.ids import AppName, MachineId
from hawker.proof.flow_checks import LASTS_S, FlowLedger, SentFlow
from hawker.proof.violation import Invariant, Violation

ONE, SHOP = MachineId("m1"), AppName("shop")


class Told:
    def __init__(self) -> None:
        self.now = 0.0
        self.found: list[Violation] = []
        self.ledger = FlowLedger(lambda: self.now, self.found.append)
        self.ledger.sent(SentFlow(id="f1", app=SHOP))

    @property
    def broken(self) -> list[Invariant]:
        return [each.invariant for each in self.found]


def test_a_flow_that_reaches_a_machine_of_its_app_is_well() -> None:
    told = Told()
    told.ledger.reached("f1", ONE, SHOP, 2, 2, closed=False)
    assert told.found == []


@pytest.mark.parametrize(
    ("flow", "app", "inside", "closed", "broken"),
    [
        ("f1", "bank", 1, False, Invariant.OWN_APP),
        ("f2", "shop", 1, False, Invariant.OWN_APP),
        ("f1", "shop", 3, False, Invariant.HARD_LIMIT),
        ("f1", "shop", 1, True, Invariant.UNCUT),
    ],
)
def test_flows_of_others_and_too_many_and_too_late_ones_are_found(
    flow: str, app: str, inside: int, closed: bool, broken: Invariant
) -> None:
    told = Told()
    told.ledger.reached(flow, ONE, AppName(app), inside, 2, closed=closed)
    assert told.broken == [broken]


def test_a_machine_that_has_answered_a_flow_rests_only_once_that_has_ended_or_was_disturbed() -> None:
    told = Told()
    told.ledger.answers("f1", ONE)
    told.ledger.rests(MachineId("m2"))
    assert told.found == []
    told.now = LASTS_S - 1
    told.ledger.rests(ONE)
    assert told.broken == [Invariant.UNCUT]
    told.ledger.disturb()
    told.ledger.rests(ONE)
    told.ledger.answers("f1", ONE)
    told.now += LASTS_S + 1
    told.ledger.rests(ONE)
    assert told.broken == [Invariant.UNCUT]


def test_a_datagram_that_was_to_be_answered_is_missed() -> None:
    told = Told()
    told.ledger.missed("f1", 3)
    assert told.broken == [Invariant.SERVED] and "datagram 3" in told.found[0].what
