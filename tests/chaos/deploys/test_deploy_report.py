"""Rows of a trial of deploys, and their sum."""

from hawker.chaos.deploys.deploy_report import DeployRow, DeploysReport, deploy_line, summary


def row(**fields: object) -> DeployRow:
    found = {"strategy": "rolling", "blow": "none", "end": "complete", "next_s": None, "rest_s": 1.25}
    return DeployRow(**{**found, "requests": 10, "lost": 0, "findings": (), **fields})  # type: ignore[arg-type]


def test_a_row_says_what_was_lost_and_found() -> None:
    assert deploy_line(row()).split() == ["rolling", "none", "complete", "-", "1.2", "s", "0", "of", "10", "none"]
    assert deploy_line(row(error="a person ended it")).endswith("none (a person ended it)")
    assert deploy_line(row(next_s=3.0, lost=2, findings=("a", "b"))).endswith("2 of 10         a; b")


def test_the_sum_counts_ends_requests_and_findings() -> None:
    rows = (row(lost=1, findings=("a",)), row(end="rolled_back"))
    report = DeploysReport(nodes=4, seconds=9.6, rows=rows, findings=("left on the host: x",))
    assert summary(report).splitlines() == [
        "left on the host: x",
        "2 deploys over 4 nodes, 2 findings; 1 complete, 1 taken back; 1 of 20 requests lost; 10 s",
    ]
