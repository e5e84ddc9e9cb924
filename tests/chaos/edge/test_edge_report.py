"""The table and the last line of a trial of edges."""

import msgspec

from hawker.chaos.edge.edge_report import HEAD, EdgeRow, EdgeTrialReport, edge_line, line, summary

ROW = EdgeRow(
    blow="link cut",
    host=2,
    gets=300,
    gets_lost=1,
    posts=150,
    posts_lost=4,
    slowest_s=1.5,
    rest_s=2.25,
    findings=("1 GETs were lost",),
)


def test_a_row_has_a_cell_below_each_word_of_the_head() -> None:
    head, told = line(HEAD), edge_line(ROW)
    for word, cell in zip(HEAD, ("link cut", "2", "1 of 300", "4 of 150", "1.50 s", "2.2 s", "1 GETs"), strict=True):
        assert told[head.index(word) :].startswith(cell)
    calm = msgspec.structs.replace(ROW, rest_s=None, findings=())
    assert edge_line(calm).endswith("  -         none")


def test_a_report_counts_the_findings_of_its_rows_and_its_own() -> None:
    report = EdgeTrialReport(
        nodes=3, seconds=61.0, rows=(ROW, ROW), twice=5, findings=("POST 7 reached machines 2 times",)
    )
    assert report.found == 3
    first, last = summary(report).splitlines()
    assert first == "POST 7 reached machines 2 times"
    assert last.startswith("2 blows over 3 nodes, 3 findings; 2 of 600 GETs and 8 of 300 POSTs lost; 5 GETs")
