"""What was sent for a deploy, and what of it breaks a promise."""

from typing import Any

from msgspec.structs import replace

from hawker.ids import AppName, NodeId
from hawker.proof.deploy_ledger import DeployLedger, KeptDeploy, SentChange, surely_kept
from hawker.proof.violation import Invariant, Violation
from hawker.record.deploy import RegisterRecord, SlotKind, SlotRecord, SlotState

ONE, OTHER = NodeId("00000001"), NodeId("00000002")


def slot(number: int, state: SlotState, machine: str = "") -> SlotRecord:
    kind = SlotKind.UPDATE if machine else SlotKind.CREATE
    return SlotRecord(number=number, kind=kind, group="app", region=None, machine=machine, state=state, at=1.0)


def register(term: int, number: int) -> RegisterRecord:
    return RegisterRecord(app=AppName("web"), version=1, voters=(ONE, OTHER), term=term, number=number)


def change(node: NodeId = ONE, term: int = 2, **fields: Any) -> SentChange:
    return SentChange(**{"node": node, "route": "update_machine", "version": 1, "term": term, "machine": "m", **fields})


class Watched(DeployLedger):
    def __init__(self, kept: KeptDeploy | None) -> None:
        self.found: list[Violation] = []
        super().__init__(self.found.extend, lambda version: kept, "web")

    @property
    def kinds(self) -> list[Invariant]:
        return [each.invariant for each in self.found]


KEPT = KeptDeploy(2, (slot(0, SlotState.CHANGING, "m"), slot(1, SlotState.WAITING)))


def test_changes_that_a_majority_knows_of_break_nothing() -> None:
    ledger = Watched(KEPT)
    ledger.sent(change())
    ledger.sent(change(machine="", slot=0, route="create_machine"))
    ledger.sent(change(machine="", route="create_machine", begins=False))
    assert ledger.found == []


def test_a_change_in_a_term_that_is_not_written_is_found() -> None:
    for kept in (None, KeptDeploy(1, KEPT.slots)):
        ledger = Watched(kept)
        ledger.sent(change())
        assert ledger.kinds == [Invariant.KEPT_BEFORE]


def test_a_machine_that_is_ordered_while_its_slot_waits_is_found() -> None:
    ledger = Watched(KEPT)
    ledger.sent(change(machine="", slot=1, route="create_machine"))
    assert ledger.kinds == [Invariant.KEPT_BEFORE]


def test_an_earlier_term_after_a_later_one_of_another_node_is_found() -> None:
    ledger = Watched(KeptDeploy(9, KEPT.slots))
    for node, term in ((ONE, 3), (ONE, 2), (OTHER, 4), (OTHER, 5)):
        ledger.sent(change(node, term))
    assert ledger.found == []
    ledger.sent(change(ONE, 3))
    assert ledger.kinds == [Invariant.ONE_COORDINATOR]


def test_a_node_that_obeys_an_earlier_term_is_found() -> None:
    ledger = Watched(KEPT)
    ledger.did(ONE, "update_machine", (1, 2), ledger.begins(ONE))
    ledger.did(OTHER, "update_machine", (1, 1), ledger.begins(OTHER))
    ledger.did(ONE, "update_machine", (1, 3), (1, 2))
    under_way = (1, 2)
    ledger.did(ONE, "update_machine", (1, 2), under_way)
    assert ledger.found == []
    ledger.did(ONE, "update_machine", (1, 2), ledger.begins(ONE))
    assert ledger.kinds == [Invariant.ONE_COORDINATOR]


def test_a_machine_gets_the_config_of_a_release_once() -> None:
    ledger = Watched(KEPT)
    for version, machine in ((1, "a"), (1, "b"), (2, "a")):
        ledger.changed(version, machine)
    assert ledger.found == []
    ledger.changed(1, "a")
    assert ledger.kinds == [Invariant.ONE_SLOT]


def test_a_majority_has_the_second_newest_of_three() -> None:
    newest, second, third = register(3, 1), register(2, 9), register(2, 8)
    assert surely_kept([third, newest, second]) is second
    assert surely_kept([newest, None, second]) is second
    assert surely_kept([newest, None, register(0, 0)]) is None


def test_one_voter_is_a_majority_of_itself() -> None:
    alone = replace(register(3, 1), voters=(ONE,))
    assert surely_kept([alone, register(2, 9)]) is alone


def test_a_slot_that_waited_when_its_deploy_was_paused_waits_until_it_goes_on() -> None:
    ledger = Watched(KEPT)
    ledger.paused(1, [2])
    ledger.sent(change(ONE, 1, slot=1))
    ledger.sent(change(ONE, 1, slot=2, begins=False))
    assert Invariant.PAUSED not in ledger.kinds
    ledger.sent(change(ONE, 1, slot=2))
    assert ledger.kinds.count(Invariant.PAUSED) == 1
    ledger.go_on()
    ledger.sent(change(ONE, 1, slot=2))
    assert ledger.kinds.count(Invariant.PAUSED) == 1
