"""What a trial of moves prints."""

from hawker.chaos.moves.move_report import BlowRow, BlowsReport, blow_line, summary

ROW = BlowRow(move="warm", blow="move.grant.after", end="done", recovered_s=2.04, away_s=4.71, findings=())


def test_a_row_says_what_happened_and_how_long_it_took() -> None:
    assert blow_line(ROW).split() == ["warm", "move.grant.after", "done", "2.0", "s", "4.7", "s", "none"]


def test_move_without_an_end_has_no_time_and_counts_as_found() -> None:
    lost = BlowRow(move="cold", blow="cut 3 s", end="-", recovered_s=None, away_s=0.0, findings=("one", "two"))
    report = BlowsReport(workload="ledger", seconds=9.4, acknowledged=7, rows=(ROW, lost), findings=("left",))
    assert blow_line(lost).endswith("-            0.0 s     one; two")
    assert report.found == 3
    assert summary(report).splitlines() == [
        "left",
        "2 blows, 3 findings; 1 moves done, 0 aborted; 7 writes of the ledger acknowledged; 9 s",
    ]
