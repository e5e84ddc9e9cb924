import msgspec

from hawker.chaos.report import SHOWN, SoakReport, page, report_of
from hawker.chaos.tally import CallVerdict, SoakFinding, SoakTally


def tally_of(*findings: SoakFinding) -> SoakTally:
    tally = SoakTally(rests_s=[0.5, 4.0], findings=list(findings), gaps_s=[0.5, 2.0], boots_ms=[900.0, 1500.0])
    for seconds in (0.004, 0.005, 0.1):
        tally.called("start_machine", CallVerdict.OK, seconds)
    tally.called("start_machine", CallVerdict.UNAVAILABLE, 0.001)
    tally.called("exec_machine", CallVerdict.LOST, 1.0)
    tally.faults["disk full"] += 2
    tally.recoveries_ms["disk full"] += [3.0, 8.0]
    return tally


def made(*findings: SoakFinding) -> SoakReport:
    return report_of(tally_of(*findings), seed=7, driver="process", minutes=0.5, lasted_s=33.0)


def test_a_clean_soak_is_one_page_and_status_0() -> None:
    report = made()
    text = page(report)
    assert report.status == 0 and len(text.splitlines()) < 25
    assert "nothing found" in text and "hawker chaos soak --minutes 0.5 --seed 7 --driver process" in text
    assert [(each.operation, each.ok, each.unavailable, each.lost, each.p50_ms) for each in report.calls] == [
        ("exec_machine", 0, 0, 1, 0.0),
        ("start_machine", 3, 1, 0, 5.0),
    ]
    assert [(each.fault, each.count, each.recovered_max_ms) for each in report.faults] == [("disk full", 2, 8.0)]
    assert (report.silent_s, report.longest_silence_s, report.boots, report.boot_max_ms) == (2.5, 2.0, 2, 1500.0)
    assert (report.rests, report.longest_rest_s) == (2, 4.0)


def test_a_violation_is_shown_with_the_facts_and_the_end_of_the_log() -> None:
    report = made(SoakFinding(12.34, "machine 1 was doubled", "\n".join(f"line {number}" for number in range(50))))
    text = page(report)
    assert report.status == 1 and "1 VIOLATIONS" in text
    assert "VIOLATION after 12.3 s: machine 1 was doubled" in text
    assert "line 49" in text and "line 5\n" not in text


def test_however_many_violations_there_are_it_stays_a_page() -> None:
    text = page(made(*(SoakFinding(1.0, f"number {number}") for number in range(SHOWN + 30))))
    assert "and 30 more" in text and f"number {SHOWN}" not in text


def test_report_can_be_read_by_programs() -> None:
    report = made(SoakFinding(1.0, "broken"))
    assert msgspec.json.decode(msgspec.json.encode(report), type=SoakReport) == report
