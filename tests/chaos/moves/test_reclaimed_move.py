"""A machine is taken back from a real node that is lost, and that returns with the machine running, while one of the
two nodes dies."""

from pathlib import Path

import pytest

from hawker.chaos.moves.blow import MoveKind, MoveTrialPlan
from hawker.chaos.moves.move_report import BlowRow, blow_line
from hawker.chaos.moves.move_trial import run_move_trial
from hawker.clock import SystemClock

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.anyio]

PLACES = ("reclaim.order.after", "reclaim.restore.restored", "surrender.end.after", "surrender.drop.retired")


@pytest.mark.long(
    reason="five moves on a fleet of its own, and five nodes that are lost; the simulator of moves plays them in "
    "`make check`, and tests/e2e/test_reclaim.py one without a death"
)
async def test_machine_is_taken_back_once_whoever_dies_and_the_lost_node_gives_it_up(tmp_path: Path) -> None:
    told: list[BlowRow] = []
    kinds = (MoveKind.RECLAIMED,)
    plan = MoveTrialPlan(modes=("warm",), places=PLACES, cancels=False, kinds=kinds, where=tmp_path)
    report = await run_move_trial(plan, SystemClock(), told.append, lambda text: None)
    assert report.found == 0, "\n".join(blow_line(row) for row in report.rows if row.findings)
    rows = [(row.blow, row.end) for row in told]
    assert rows == [("none", "aborted"), *((place, "aborted") for place in PLACES)]
