"""`hawker sim`: plays a worker, its clients, faults and crashes in virtual time, from a seed, and says what broke."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from hawker.cli.exits import ExitStatus, Failure
from hawker.cli.lazy import CommandModule, LazyGroup
from hawker.cli.options import check_before_subcommand
from hawker.cli.output import line_of_json
from hawker.sim.harness.plan import story
from hawker.sim.harness.planted_bug import kit_of
from hawker.sim.node.kit import SOUND
from hawker.sim.worker.plan import MINUTES, WorkerPlan, draw
from hawker.sim.worker.planted import PLANTS
from hawker.sim.worker.simulation import WorkerOutcome, play, play_and_keep, repeat, report_of, shrink, summary

SEEDS = 20
CHECKOUT = Path(__file__).parents[4]


class BenchPlace(CommandModule):
    """A command in `bench/`, which a checkout of the sources has and a wheel has not."""

    def load(self) -> click.Command:
        """Raises `Failure` where there is no checkout."""
        if not CHECKOUT.joinpath(*self.module.split(".")).with_suffix(".py").is_file():
            raise Failure("the comparison of schedulers is in no package: run it in a checkout of the sources")
        if str(CHECKOUT) not in sys.path:
            sys.path.append(str(CHECKOUT))
        return super().load()


TABLE = {
    "catalog": CommandModule("hawker.sim.commands.catalog", "Simulate the catalog's replication under faults."),
    "edge": CommandModule("hawker.sim.commands.edge", "Simulate edges of several hosts, requests and machines."),
    "networks": CommandModule("hawker.sim.commands.networks", "Simulate private networks, names and certificates."),
    "fleet": CommandModule("hawker.sim.commands.fleet", "Simulate whole fleets under faults."),
    "deploys": CommandModule("hawker.sim.commands.deploys", "Simulate deploys over several nodes."),
    "moves": CommandModule("hawker.sim.commands.moves", "Simulate moves of machines and volumes between nodes."),
    "schedulers": BenchPlace("bench.schedulers.command", "Compare five schedulers on one workload, in a checkout."),
}


class Seeds(click.ParamType[range]):
    """`COUNT`, from 1 on, or `A-B`."""

    name = "COUNT|A-B"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> range:
        if isinstance(value, range):
            return value
        first, dash, last = str(value).partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            self.fail(f"{value!r} is neither a number nor two with a dash between", param, ctx)
        seeds = range(int(first), int(last) + 1) if dash else range(1, int(first) + 1)
        return seeds if seeds else self.fail(f"{value!r} names no seed", param, ctx)


class Numbers(click.ParamType[frozenset[int]]):
    name = "N,N,..."

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[int]:
        if isinstance(value, frozenset):
            return value
        parts = str(value).split(",") if value else []
        if not all(part.isdecimal() for part in parts):
            self.fail(f"{value!r} is no list of numbers", param, ctx)
        return frozenset(map(int, parts))


@click.group("sim", cls=LazyGroup, table=TABLE, invoke_without_command=True)
@click.option("--seed", type=click.IntRange(0), help="Play this seed.")
@click.option("--seeds", type=Seeds(), help=f"Play so many, or these; {SEEDS} unless told.")
@click.option("--minutes", type=click.FloatRange(0.1, 600), default=MINUTES, show_default=True,
              help="Virtual minutes of clients and faults.")  # fmt: skip
@click.option("--plant", type=click.Choice([plant.name for plant in PLANTS]), metavar="NAME",
              help="Plant this bug in the worker.")  # fmt: skip
@click.option("--plants", is_flag=True, help="List the bugs that can be planted.")
@click.option("--only", type=Numbers(), help="Play only these operations, as a story numbers them.")
@click.option("--trace", is_flag=True, help="Print the whole trace, and no story.")
@click.option("--json", "json", is_flag=True, help="Print one object a line for each seed.")
@click.pass_context
def command(
    ctx: click.Context,
    seed: int | None,
    seeds: range | None,
    minutes: float,
    plant: str | None,
    plants: bool,
    only: frozenset[int] | None,
    trace: bool,
    json: bool,
) -> int:
    """Play a whole worker in virtual time: its own code over a played host, with clients, crashes, broken disks and
    drivers, all from a seed. Check everything it promises. The same seed gives the same run, byte for byte.

    Ends with 1 when something was found, and tells the shortest story of how it came to it.

    Its commands play other things than a worker.

    \b
    Examples:
      hawker sim
      hawker sim --seeds 1000
      hawker sim --seed 7 --trace
      hawker sim --plant no-fsync
    """
    if ctx.invoked_subcommand is not None:
        check_before_subcommand(ctx)
        return ExitStatus.OK
    if plants:
        click.echo("\n".join(f"{each.name:22} {each.what}" for each in PLANTS))
        return ExitStatus.OK
    wanted = range(seed, seed + 1) if seed is not None else (seeds or range(1, SEEDS + 1))
    plans = (draw(each, minutes) for each in wanted)
    chosen = (plan if only is None else plan.only(only) for plan in plans)
    with without_logs():
        return _play(chosen, minutes, plant, trace=trace, json=json, cut=only is not None)


@contextmanager
def without_logs() -> Iterator[None]:
    """What goes wrong here is meant to."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _play(plans: Iterator[WorkerPlan], minutes: float, plant: str | None, *, trace: bool, json: bool, cut: bool) -> int:
    """Stops at the first seed in which something is found."""
    kit = kit_of(PLANTS, plant, SOUND)
    operations = seeds = 0
    began = _cpu_s()
    for plan in plans:
        outcome = (play_and_keep if trace else play)(plan, kit)
        operations, seeds = operations + outcome.operations, seeds + 1
        for line in outcome.lines if trace else ():
            click.echo(str(line))
        command = repeat(outcome, minutes, plant, whole=not cut)
        click.echo(line_of_json(report_of(outcome, command)) if json else summary(outcome))
        if outcome.found:
            if not (trace or json):
                _tell(shrink(outcome, kit), len(plan.operations), minutes, plant)
            return ExitStatus.FAILED
    if not (json or trace):
        took_s = _cpu_s() - began
        rate = f"{operations} operations in {took_s:.1f} s of one cpu: {operations / took_s:.0f} a second"
        click.echo(f"{seeds} seeds, {rate}")
    return ExitStatus.OK


def _cpu_s() -> float:
    """What this process has used, so that the figure is of a core and not of what else runs here."""
    spent = os.times()
    return spent.user + spent.system


def _tell(shortest: WorkerOutcome, of: int, minutes: float, plant: str | None) -> None:
    for line in story(shortest, of, repeat(shortest, minutes, plant, whole=False)):
        click.echo(line)
