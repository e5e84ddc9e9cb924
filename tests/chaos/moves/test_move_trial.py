"""Moves between real nodes while daemons die and links are cut: nothing that a client was told is lost."""

from pathlib import Path

import pytest

from hawker.chaos.moves.blow import CUTS, Blow, MoveKind, MoveTrialPlan, OrderedMove
from hawker.chaos.moves.move_report import BlowRow, blow_line
from hawker.chaos.moves.move_trial import run_move_trial
from hawker.clock import SystemClock
from hawker.record.move import MoveState

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.anyio,
    pytest.mark.timeout(3600),  # some minutes each, and a minute and more for a move on a busy host
]

KINDS = (MoveKind.SCHEDULED, MoveKind.FOLLOWED)
WHOLE = (*KINDS, MoveKind.BACK, MoveKind.RECLAIMED)
SHORTEST = ("move.grant.after", "receive.fetch.copied")
LATER = ("scheduled_move.begin.after", "bring_snapshots.bring.arrived")
GIVEN_BACK = ("move.grant.after", "receive.accept.before")
TAKEN_BACK = ("reclaim.order.after", "reclaim.restore.restored", "surrender.end.after", "surrender.drop.retired")
SHORT = ("move.close.after", "move.grant.after", "receive.fetch.copied", "receive.accept.after")


async def played(plan: MoveTrialPlan) -> list[BlowRow]:
    told: list[BlowRow] = []
    report = await run_move_trial(plan, SystemClock(), told.append, lambda text: None)
    assert report.found == 0, "\n".join(blow_line(row) for row in report.rows if row.findings)
    assert report.rows == tuple(told) and report.acknowledged > 0
    return told


@pytest.mark.long(
    reason="four moves under load; the simulator of moves in `make check` kills whoever takes part and cuts links, "
    "tests/e2e/test_moves.py has moves of real nodes"
)
async def test_a_client_loses_nothing_whoever_dies_and_when_a_link_is_cut(tmp_path: Path) -> None:
    """The short form of `hawker chaos move`; its writer stands for a database."""
    cut = Blow(OrderedMove("warm"), cut_s=2, cut_at=MoveState.WARMING)
    rows = await played(MoveTrialPlan(modes=("warm",), places=SHORTEST, cancels=False, cuts=(cut,), where=tmp_path))
    assert {row.blow for row in rows} == {"none", *SHORTEST, "cut 2 s at warming"}
    assert [row for row in rows if row.end != "done"] == []


@pytest.mark.long(
    reason="four more moves on a fleet of its own; the test above has the deaths of a move, the simulator of moves in "
    "`make check` those of scheduled and followed ones, and tests/e2e/test_moves.py a snapshot that follows"
)
async def test_a_scheduled_move_happens_once_and_a_snapshot_follows_whoever_dies(tmp_path: Path) -> None:
    rows = await played(MoveTrialPlan(modes=("warm",), places=LATER, cancels=False, kinds=KINDS, where=tmp_path))
    assert [(row.move, row.blow, row.end) for row in rows] == [
        ("warm, scheduled", "none", "done"),
        ("warm, scheduled", LATER[0], "done"),
        ("warm, followed", "none", "done"),
        ("warm, followed", LATER[1], "done"),
    ]


@pytest.mark.long(
    reason="eight moves on a fleet of its own, each after three starts that fail; the simulator of moves plays them in "
    "`make check`"
)
async def test_a_machine_that_does_not_start_goes_back_whoever_dies_meanwhile(tmp_path: Path) -> None:
    """Both at once: who gives it back, and who takes it."""
    kinds = (MoveKind.BACK,)
    plan = MoveTrialPlan(modes=("warm",), places=GIVEN_BACK, cancels=False, kinds=kinds, both=True, where=tmp_path)
    rows = [(row.blow, row.end) for row in await played(plan) if row.move == "warm, back"]
    assert rows[0] == ("none", "done")
    assert sorted(rows[1:]) == [(f"{place}, both", "done") for place in sorted(GIVEN_BACK)]


@pytest.mark.long(
    reason="five moves on a fleet of its own, and five nodes that are lost; the simulator of moves plays them in "
    "`make check`, and tests/e2e/test_reclaim.py one without a death"
)
async def test_a_machine_is_taken_back_once_whoever_dies_and_the_lost_node_gives_it_up(tmp_path: Path) -> None:
    kinds = (MoveKind.RECLAIMED,)
    plan = MoveTrialPlan(modes=("warm",), places=TAKEN_BACK, cancels=False, kinds=kinds, where=tmp_path)
    rows = [(row.blow, row.end) for row in await played(plan) if row.move == "warm, reclaimed"]
    assert rows[0] == ("none", "aborted")
    assert sorted(rows[1:]) == [(place, "aborted") for place in sorted(TAKEN_BACK)]


@pytest.mark.timeout(14_400)  # a minute for ten of them; some hours on a busy host
@pytest.mark.long(reason="some hundred daemons die, and a link is cut for 45 s; the tests above are the short form")
async def test_a_client_loses_nothing_at_any_place_of_any_move(tmp_path: Path) -> None:
    rows = await played(MoveTrialPlan(kinds=WHOLE, cuts=CUTS, where=tmp_path))
    assert {"done", "aborted"} <= {row.end for row in rows}
    assert any(row.blow.endswith(".undone") for row in rows)


@pytest.mark.long(
    reason="PostgreSQL is made, filled and moved ten times; the test above with a ledger is the short form"
)
async def test_a_database_loses_no_transaction_and_stays_sound(tmp_path: Path) -> None:
    plan = MoveTrialPlan(workload="database", modes=("warm",), places=SHORT, cancels=False, where=tmp_path)
    assert [row for row in await played(plan) if row.end != "done"] == []


@pytest.mark.long(reason="eight moves for each writer; the test above with a ledger is the short form")
@pytest.mark.parametrize("workload", ["root", "blocks", "git"])
async def test_a_client_of_another_kind_loses_nothing(tmp_path: Path, workload: str) -> None:
    plan = MoveTrialPlan(workload=workload, modes=("warm",), places=SHORT, cancels=False, where=tmp_path)
    assert [row for row in await played(plan) if row.end != "done"] == []
