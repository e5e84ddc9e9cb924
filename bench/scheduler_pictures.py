"""The pictures and the table of docs/schedulers.md, from reports that `hawker sim schedulers --json` wrote.

    python bench/scheduler_pictures.py REPORTS.json [REPORTS.json ...] [--into DIRECTORY]

The same reports give the same bytes.
"""

import argparse
from pathlib import Path

import msgspec

from bench.schedulers.plots import plots
from bench.schedulers.report import Report

_PICTURES = Path(__file__).parents[1] / "docs" / "schedulers"

_HEADINGS = (
    "hosts", "policy", "refused", "placed after, ms", "runs after, ms", "busy", "varies", "p99/p50", "MiB pulled",
    "looked at", "asked", "beside",
)  # fmt: skip


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """What the command writes, without what it assumed."""

    reports: tuple[Report, ...]


def shown(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def row(report: Report) -> str:
    refused = ", ".join(f"{count:,} {why}" for why, count in report.refused.items())
    cells = (
        f"{report.hosts:,}",
        report.policy,
        f"{refused or 0}",
        f"{shown(report.place_p50_ms, 1)} / {shown(report.place_p99_ms, 1)}",
        f"{shown(report.start_p50_ms, 0)} / {shown(report.start_p99_ms, 0)}",
        f"{report.busy:.0%}",
        shown(report.variation, 2),
        shown(report.overworked, 2),
        f"{1024 * report.pulled_gib / max(1, report.placed):,.0f}",
        shown(report.looked, 1),
        shown(report.asked, 1),
        shown(report.background, 1),
    )
    return "| " + " | ".join(cells) + " |"


def main(files: list[Path], into: Path) -> None:
    reports = [each for file in files for each in msgspec.json.decode(file.read_bytes(), type=Document).reports]
    print("| " + " | ".join(_HEADINGS) + " |")
    print("|" + "---|" * len(_HEADINGS))
    for report in reports:
        print(row(report))
    into.mkdir(parents=True, exist_ok=True)
    for name, picture in plots(reports).items():
        (into / name).write_text(picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, default=_PICTURES)
    given = parser.parse_args()
    main(given.files, given.into)
