"""`hawker sim schedulers`: one workload under five ways to place it, side by side, in virtual time and from a seed.

The command line finds it in a checkout only.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from bench.schedulers.costs import Costs
from bench.schedulers.fleet import FleetPlan
from bench.schedulers.planted import PLANTS, ROUGH, find
from bench.schedulers.plots import plots
from bench.schedulers.report import Report
from bench.schedulers.run import POLICIES, SOUND, Run
from bench.schedulers.workload import MOST_ORDERS, Order, Workload, orders, read_trace
from hawker.cli.exits import ExitStatus
from hawker.cli.output import as_json, table

FOR_EACH_HOST = 50
_MOST_HOSTS = 100_000
_HEADINGS = (
    "hosts",
    "policy",
    "placed",
    "refused",
    "place p50/p99",
    "start p50/p99",
    "busy",
    "cv",
    "p99/p50",
    "pulled",
)
_WORK = ("looked", "asked", "background")


class Sizes(click.ParamType[tuple[int, ...]]):
    name = "N,N,..."

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = str(value).split(",")
        if not all(part.isascii() and part.isdecimal() and 0 < int(part[:7]) <= _MOST_HOSTS for part in parts):
            self.fail(f"{value!r} is no list of numbers from 1 to {_MOST_HOSTS}", param, ctx)
        return tuple(map(int, parts))


@click.command("schedulers")
@click.option("--policy", "policies", type=click.Choice(list(POLICIES)), multiple=True,
              help="Only this policy; default all; may be repeated.")  # fmt: skip
@click.option(
    "--hosts", type=Sizes(), default="100", show_default=True, help="Number of hosts; several are played in turn."
)
@click.option("--orders", "count", type=click.IntRange(1, MOST_ORDERS),
              help=f"How many are ordered; {FOR_EACH_HOST} for each host unless told.")  # fmt: skip
@click.option("--load", type=click.FloatRange(0.01, 10), default=1.2, show_default=True,
              help="The share of the fleet's memory that the orders aim at.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--trace", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="Take the orders from this CSV file.")  # fmt: skip
@click.option("--plant", type=click.Choice([plant.name for plant in PLANTS]), metavar="NAME",
              help="Plant this bug in hosts or orders.")  # fmt: skip
@click.option("--plants", is_flag=True, help="List the bugs that can be planted.")
@click.option("--plots", "folder", type=click.Path(path_type=Path, file_okay=False),
              help="Write plots into this directory.")  # fmt: skip
@click.option("--json", "json", is_flag=True, help="Print all reports as one document, with the assumptions.")
def command(
    policies: tuple[str, ...],
    hosts: tuple[int, ...],
    count: int | None,
    load: float,
    seed: int,
    trace: Path | None,
    plant: str | None,
    plants: bool,
    folder: Path | None,
    json: bool,
) -> int:
    """Give the same orders to each policy over the same hosts, with failures, and report what each does well and what
    worse. No host may be oversold, no order filled twice, no acknowledged machine lost: ends with 1 when one is.

    \b
    Examples:
      hawker sim schedulers
      hawker sim schedulers --hosts 10,100,1000 --plots pictures
      hawker sim schedulers --policy market --policy spread --orders 20000
      hawker sim schedulers --trace orders.csv --json
      hawker sim schedulers --policy market --plant double-fill
    """
    if plants:
        click.echo("\n".join(f"{each.name:16} {each.what}" for each in PLANTS))
        return ExitStatus.OK
    planted = find(plant) if plant is not None else None
    kit, costs = (SOUND, Costs()) if planted is None else (planted.kit, ROUGH)
    reports = []
    for size in hosts:
        for name in policies or POLICIES:
            run = Run(name, FleetPlan(hosts=size), costs, seed, kit)
            reports.append(run.play(_orders(run, count, load, seed, trace)))
    _say(reports, costs, json=json)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for file, picture in plots(reports).items():
            (folder / file).write_text(picture)
    return ExitStatus.FAILED if any(report.breaches for report in reports) else ExitStatus.OK


def _orders(run: Run, count: int | None, load: float, seed: int, trace: Path | None) -> Iterable[Order]:
    if trace is not None:
        return read_trace(trace, count or MOST_ORDERS)
    wanted = count or FOR_EACH_HOST * len(run.hosts)
    return orders(Workload(orders=wanted, load=load, seed=seed), run.fleet.memory_mib)


def _say(reports: list[Report], costs: Costs, *, json: bool) -> None:
    if json:
        click.echo(as_json({"costs": costs, "reports": reports}))
        return
    click.echo(table([*_HEADINGS, *_WORK], map(_row, reports)))
    for line in _breaches(reports):
        click.echo(line)


def _row(report: Report) -> list[str]:
    return [
        f"{report.hosts:,}",
        report.policy,
        f"{report.placed:,}",
        ", ".join(f"{count:,} {why}" for why, count in report.refused.items()) or "0",
        _times(report.place_p50_ms, report.place_p99_ms),
        _times(report.start_p50_ms, report.start_p99_ms),
        f"{report.busy:.0%}",
        f"{report.variation:.2f}",
        "-" if report.overworked is None else f"{report.overworked:.2f}",
        f"{report.pulled_gib:,.0f} GiB",
        f"{report.looked:,.1f}",
        f"{report.asked:,.1f}",
        f"{report.background:,.1f}",
    ]


def _times(*values_ms: float | None) -> str:
    return " / ".join(
        "-" if each is None else f"{each:,.0f} ms" if each >= 100 else f"{each:.3g} ms" for each in values_ms
    )


def _breaches(reports: list[Report]) -> Iterator[str]:
    for report in reports:
        for breach in report.breaches:
            yield f"{report.policy} over {report.hosts:,} hosts: {breach.promise}: {breach.about} {breach.what}"
