"""`hawker sim fleet`: whole fleets under faults, in virtual time.

It asks no node anything, so like `sim` it imports what stands above the command line.
"""

import os

import click

from hawker.cli.commands.sim import Numbers, Seeds, without_logs
from hawker.cli.exits import Exit
from hawker.cli.output import line_of_json
from hawker.sim.fleet.plan import MINUTES, draw
from hawker.sim.fleet.planted import PLANTS, find
from hawker.sim.fleet.run import Outcome, play

SEEDS = "1-20"


@click.command("fleet")
@click.option("--seeds", type=Seeds(), default=SEEDS, show_default=True, help="Play so many, or these.")
@click.option("--nodes", type=click.IntRange(3, 200), help="So many nodes; 3 to 20, by the seed, unless told.")
@click.option("--minutes", type=click.FloatRange(0.1, 60), default=MINUTES, show_default=True,
              help="Of virtual time, for which clients and faults go on.")  # fmt: skip
@click.option("--plant", type=click.Choice([plant.name for plant in PLANTS]), metavar="NAME",
              help="Play nodes with this bug in them.")  # fmt: skip
@click.option("--plants", is_flag=True, help="List the bugs that can be planted.")
@click.option("--only", type=Numbers(), help="Only these deeds of the seeds, as a trace numbers them.")
@click.option("--trace", is_flag=True, help="Print everything that happened.")
@click.option("--json", "json", is_flag=True, help="One object a line for each seed.")
def command(
    seeds: range,
    nodes: int | None,
    minutes: float,
    plant: str | None,
    plants: bool,
    only: frozenset[int] | None,
    trace: bool,
    json: bool,
) -> int:
    """Play whole fleets: brokers, workers, gossip, catalogs and spares with their own code, over a network that loses,
    delays and parts, and hosts that die. Check what a fleet promises. The same seed gives the same run in every
    process.

    Stops at the first seed in which something is found, and ends with 1.

    \b
    Examples:
      hawker sim fleet
      hawker sim fleet --seeds 1000
      hawker sim fleet --seeds 7-7 --trace
      hawker sim fleet --nodes 50 --seeds 3
      hawker sim fleet --plant no-cancel
    """
    if plants:
        click.echo("\n".join(f"{each.name:18} {each.what}" for each in PLANTS))
        return Exit.OK
    operations = played = 0
    began = _cpu_s()
    with without_logs():
        for seed in seeds:
            plan = draw(seed, minutes, nodes)
            outcome = play(plan if only is None else plan.only(only), find(plant))
            operations, played = operations + outcome.operations, played + 1
            _tell(outcome, trace=trace, json=json)
            if outcome.found:
                return Exit.FAILED
    if not json:
        took_s = _cpu_s() - began
        rate = f"{operations} operations in {took_s:.1f} s of one cpu: {operations / took_s:.0f} a second"
        click.echo(f"{played} seeds, {rate}")
    return Exit.OK


def _tell(outcome: Outcome, *, trace: bool, json: bool) -> None:
    for line in outcome.lines if trace else ():
        click.echo(str(line))
    click.echo(line_of_json(_report(outcome)) if json else _summary(outcome))
    for found in () if trace or json else outcome.found:
        click.echo(f"  {found}")


def _summary(outcome: Outcome) -> str:
    return (
        f"seed {outcome.plan.seed}: {outcome.plan.nodes} nodes, {outcome.operations} operations,"
        f" {outcome.filled} orders filled, {outcome.calls} calls, {outcome.blows} faults,"
        f" {outcome.kills} daemons killed, {outcome.takeovers} takeovers,"
        f" {outcome.ended_at:.0f} s, digest {outcome.digest}"
        f"{', FOUND' if outcome.found else ''}"
    )


def _report(outcome: Outcome) -> dict[str, object]:
    return {
        "seed": outcome.plan.seed,
        "nodes": outcome.plan.nodes,
        "operations": outcome.operations,
        "filled": outcome.filled,
        "calls": outcome.calls,
        "faults": outcome.blows,
        "kills": outcome.kills,
        "takeovers": outcome.takeovers,
        "seconds": outcome.ended_at,
        "digest": outcome.digest,
        "found": [str(found) for found in outcome.found],
    }


def _cpu_s() -> float:
    spent = os.times()
    return spent.user + spent.system
