"""What a ledger of requests finds, each by the smallest case."""

import pytest

from hawker.ids import AppName, MachineId, NodeId
from hawker.proof.edge_checks import EdgeLedger, SentRequest
from hawker.proof.violation import Invariant, Violation

SHOP, OTHER = AppName("shop"), AppName("other")
ONE, TWO = MachineId("m1"), MachineId("m2")


class Ledger(EdgeLedger):
    def __init__(self) -> None:
        self.at = 0.0
        self.found: list[Violation] = []
        super().__init__(lambda: self.at, self.found.append)

    def send(self, method: str = "GET") -> None:
        self.sent(SentRequest(id="r1", app=SHOP, method=method, sent_at=self.at, patience_s=0.0))

    def reach(self, machine: MachineId, app: AppName = SHOP, hard: int | None = None, *, closed: bool = False) -> None:
        self.reached("r1", machine, app, hard, closed=closed)

    @property
    def kinds(self) -> list[Invariant]:
        return [each.invariant for each in self.found]


@pytest.mark.parametrize(("method", "times"), [("GET", 2), ("PUT", 2), ("POST", 1), ("PATCH", 1)])
def test_a_request_reaches_machines_as_often_as_it_may(method: str, times: int) -> None:
    ledger = Ledger()
    ledger.send(method)
    for _ in range(times):
        ledger.reach(ONE)
    assert ledger.kinds == []
    ledger.reach(TWO)
    assert ledger.kinds == [Invariant.SENT_ONCE]


def test_a_replay_that_an_app_ordered_is_no_repetition() -> None:
    ledger = Ledger()
    ledger.send("POST")
    ledger.reach(ONE)
    ledger.requests["r1"].replays += 1
    ledger.reach(TWO)
    assert ledger.kinds == []


def test_an_edge_hands_on_to_other_regions_what_has_come_to_it_and_no_more() -> None:
    ledger = Ledger()
    near, far = NodeId("1"), NodeId("2")
    ledger.sent(SentRequest(id="r1", app=SHOP, method="GET", sent_at=0.0, patience_s=0.0, edge=near))
    ledger.abroad(near, 1)
    ledger.answered("r1", 200, served=True)
    ledger.abroad(near, 1)
    assert ledger.kinds == [], "it has just ended"
    ledger.at = 60.0
    ledger.abroad(near, 0)
    assert ledger.kinds == []
    ledger.abroad(near, 1)
    ledger.abroad(far, 1)
    assert ledger.kinds == [Invariant.NOT_ROUND] * 2


def test_bytes_in_flight_are_bounded_and_a_rest_cuts_nobody() -> None:
    ledger = Ledger()
    ledger.send()
    ledger.reach(ONE, hard=1)
    ledger.rests(ONE)
    ledger.reach(ONE, hard=1)
    assert ledger.kinds == [Invariant.UNCUT, Invariant.HARD_LIMIT] and ledger.in_flight(ONE) == 2
    ledger.left("r1", ONE)
    ledger.left("r1", ONE)
    ledger.rests(ONE)
    assert len(ledger.found) == 2 and not ledger.in_flight(ONE)


def test_a_request_after_a_close_or_to_another_app_or_from_nobody_is_found() -> None:
    ledger = Ledger()
    ledger.send()
    ledger.reach(ONE, closed=True)
    ledger.reach(TWO, OTHER)
    ledger.reached("r9", ONE, SHOP, None, closed=False)
    assert ledger.kinds == [Invariant.UNCUT, Invariant.OWN_APP, Invariant.OWN_APP]


def test_a_request_in_another_region_than_it_is_forced_to_is_found_unless_an_app_had_it_replayed() -> None:
    ledger = Ledger()
    ledger.region_of = {ONE: "mad", TWO: "ams"}.__getitem__
    ledger.sent(SentRequest(id="r1", app=SHOP, method="GET", sent_at=0.0, patience_s=0.0, region="mad"))
    ledger.reach(ONE)
    assert ledger.kinds == []
    ledger.reach(TWO)
    assert ledger.kinds == [Invariant.OWN_REGION]
    ledger.requests["r1"].replays += 1
    ledger.reach(TWO)
    assert ledger.kinds == [Invariant.OWN_REGION]


def test_a_refusal_is_found_where_a_machine_could_have_taken_it() -> None:
    ledger = Ledger()
    ledger.send()
    ledger.answered("r1", 503, served=False)
    ledger.answered("r1", 200, served=True)
    ledger.requests["r1"].excused = True
    ledger.answered("r1", None, served=True)
    assert ledger.kinds == []
    ledger.requests["r1"].excused = False
    ledger.answered("r1", None, served=True)
    assert ledger.kinds == [Invariant.SERVED]


def test_a_request_without_an_answer_is_overdue_once_its_time_is_up() -> None:
    ledger = Ledger()
    ledger.send()
    ledger.at = 65.0
    assert list(ledger.overdue()) == []
    ledger.at = 66.0
    assert [each.invariant for each in ledger.overdue()] == [Invariant.ANSWERED]
    ledger.answered("r1", 503, served=False)
    assert list(ledger.overdue()) == []


def test_a_request_that_was_replayed_has_the_time_of_two() -> None:
    ledger = Ledger()
    ledger.send()
    ledger.requests["r1"].replays += 1
    ledger.at = 125.0
    assert list(ledger.overdue()) == []
    ledger.at = 126.0
    assert [each.invariant for each in ledger.overdue()] == [Invariant.ANSWERED]


def test_a_field_that_is_forged_is_found() -> None:
    ledger = Ledger()
    ledger.forged(ONE, "r1", "fly-client-ip", "forged")
    assert ledger.kinds == [Invariant.UNFORGED]


@pytest.mark.parametrize(("elsewhere", "found"), [(False, [Invariant.ANSWERED]), (True, [])])
def test_a_request_that_waits_for_a_lost_host_is_found_unless_it_went_elsewhere(
    *, elsewhere: bool, found: list[Invariant]
) -> None:
    ledger = Ledger()
    ledger.send()
    ledger.requests["r1"].plain = True
    ledger.reach(ONE)
    for request in ledger.asked_of([ONE], ledger.requests["r1"].edge):
        request.expect_end(6.0)
    if elsewhere:
        ledger.reach(TWO)
    ledger.at = 6.1
    assert [each.invariant for each in ledger.overdue()] == found
    assert list(ledger.overdue()) == [], "it is told once"
