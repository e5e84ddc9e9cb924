"""`hawker sim fleet`: whole fleets under faults, in virtual time."""

import os

import click

from hawker.cli.exits import ExitStatus
from hawker.cli.output import line_of_json
from hawker.sim.commands.worker import Numbers, Seeds, without_logs
from hawker.sim.fleet.cluster import SOUND_FLEET
from hawker.sim.fleet.plan import MINUTES, FleetPlan, draw
from hawker.sim.fleet.planted import PLANTS
from hawker.sim.fleet.simulation import TRIES, FleetOutcome, FleetRequest, play, repeat, report_of, shrink, summary
from hawker.sim.harness.plan import story
from hawker.sim.harness.planted_bug import kit_of

SEEDS = "1-20"
MOST_NODES = 2000


@click.command("fleet")
@click.option("--seeds", type=Seeds(), default=SEEDS, show_default=True, help="The number of seeds, or a range.")
@click.option("--nodes", type=click.IntRange(3, MOST_NODES), help="Number of nodes; default 3 to 20, by the seed.")
@click.option("--light", is_flag=True, help="Use the fake of the worker, for fleets of hundreds of nodes.")
@click.option("--minutes", type=click.FloatRange(0.1, 60), default=MINUTES, show_default=True,
              help="Virtual minutes of clients and faults.")  # fmt: skip
@click.option("--plant", type=click.Choice([plant.name for plant in PLANTS]), metavar="NAME",
              help="Plant this bug in the nodes.")  # fmt: skip
@click.option("--plants", is_flag=True, help="List the bugs that can be planted.")
@click.option("--only", type=Numbers(), help="Play only these operations, as a trace numbers them.")
@click.option("--narrow", type=click.IntRange(1, MOST_NODES), help="Play the operations among this many nodes only.")
@click.option("--tries", type=click.IntRange(0, 10_000), default=TRIES, show_default=True,
              help="Runs to spend on the shortest story of a finding; 0: no story.")  # fmt: skip
@click.option("--trace", is_flag=True, help="Print the whole trace, and no story.")
@click.option("--json", "json", is_flag=True, help="Print one object a line for each seed.")
def command(
    seeds: range,
    nodes: int | None,
    light: bool,
    minutes: float,
    plant: str | None,
    plants: bool,
    only: frozenset[int] | None,
    narrow: int | None,
    tries: int,
    trace: bool,
    json: bool,
) -> int:
    """Play whole fleets: brokers, workers, gossip, catalogs and spares with their own code, over a network that loses,
    delays and parts, and hosts that die. Check what a fleet promises. The same seed gives the same run in every
    process.

    Stops at the first seed in which something is found, tells the shortest story of how it came to it, and ends with 1.

    \b
    Examples:
      hawker sim fleet
      hawker sim fleet --seeds 1000
      hawker sim fleet --seeds 7-7 --trace
      hawker sim fleet --nodes 50 --seeds 3
      hawker sim fleet --light --nodes 500 --seeds 3
      hawker sim fleet --plant no-cancel
    """
    if plants:
        click.echo("\n".join(f"{each.name:18} {each.what}" for each in PLANTS))
        return ExitStatus.OK
    kit = kit_of(PLANTS, plant, SOUND_FLEET)
    asked = FleetRequest(minutes=minutes, nodes=nodes, plant=plant, light=light)
    operations = played = 0
    began = _cpu_s()
    with without_logs():
        for seed in seeds:
            whole = draw(seed, minutes, nodes, light=light)
            plan = whole if narrow is None else whole.within(narrow)
            outcome = play(plan if only is None else plan.only(only), kit)
            operations, played = operations + outcome.operations, played + 1
            _tell(outcome, trace=trace, json=json)
            if outcome.found:
                if tries and not (trace or json):
                    _tell_story(shrink(outcome, kit, tries), whole, asked)
                return ExitStatus.FAILED
    if not json:
        took_s = _cpu_s() - began
        rate = f"{operations} operations in {took_s:.1f} s of one cpu: {operations / took_s:.0f} a second"
        click.echo(f"{played} seeds, {rate}")
    return ExitStatus.OK


def _tell(outcome: FleetOutcome, *, trace: bool, json: bool) -> None:
    for line in outcome.lines if trace else ():
        click.echo(str(line))
    click.echo(line_of_json(report_of(outcome)) if json else summary(outcome))
    for found in () if trace or json else outcome.found:
        click.echo(f"  {found}")


def _tell_story(shortest: FleetOutcome, whole: FleetPlan, asked: FleetRequest) -> None:
    for line in story(shortest, len(whole.operations), repeat(shortest, whole.nodes, asked)):
        click.echo(line)


def _cpu_s() -> float:
    spent = os.times()
    return spent.user + spent.system
