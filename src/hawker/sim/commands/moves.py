"""`hawker sim moves`: moves of machines and volumes between nodes, in virtual time."""

import click

from hawker.cli.exits import ExitStatus
from hawker.cli.output import line_of_json
from hawker.sim.commands.worker import Numbers, Seeds, without_logs
from hawker.sim.harness.plan import only_option, story
from hawker.sim.harness.planted_bug import kit_of
from hawker.sim.moves.move_bugs import PLANTS
from hawker.sim.moves.move_run import MoveOutcome, draw, play, shrink
from hawker.sim.node.kit import SOUND

SEEDS = "1-20"
TRIES = 200


@click.command("moves")
@click.option("--seeds", type=Seeds(), default=SEEDS, show_default=True, help="The number of seeds, or a range.")
@click.option("--plant", type=click.Choice([plant.name for plant in PLANTS]), metavar="NAME",
              help="Plant this bug in the nodes.")  # fmt: skip
@click.option("--plants", is_flag=True, help="List the bugs that can be planted.")
@click.option("--only", type=Numbers(), help="Play only these operations, as a trace numbers them.")
@click.option("--tries", type=click.IntRange(0, 10_000), default=TRIES, show_default=True,
              help="Runs to spend on the shortest story of a finding; 0: no story.")  # fmt: skip
@click.option("--trace", is_flag=True, help="Print the whole trace, and no story.")
@click.option("--json", "json", is_flag=True, help="Print one object a line for each seed.")
def command(
    seeds: range,
    plant: str | None,
    plants: bool,
    only: frozenset[int] | None,
    tries: int,
    trace: bool,
    json: bool,
) -> int:
    """Play moves between three nodes with their own code, over a network that loses, delays and parts, with daemons
    that are killed, power that fails and disks that lie. Check that each machine and volume has one owner and one
    writer at every moment, and that no acknowledged write is lost. The same seed gives the same run in every process.

    \b
    Examples:
      hawker sim moves
      hawker sim moves --seeds 500
      hawker sim moves --plant grant-not-durable
    """
    if plants:
        click.echo("\n".join(f"{each.name:20} {each.what}" for each in PLANTS))
        return ExitStatus.OK
    kit = kit_of(PLANTS, plant, SOUND)
    with without_logs():
        for seed in seeds:
            plan = draw(seed)
            outcome = play(plan if only is None else plan.only(only), kit)
            if json:
                found = [str(each) for each in outcome.found]
                counts = {"moves": outcome.moves, "aborted": outcome.aborted, "kills": outcome.kills}
                click.echo(line_of_json({"seed": seed, "digest": outcome.digest, **counts, "found": found}))
            else:
                _tell(outcome, trace=trace)
            if outcome.found:
                if tries and not trace and not json:
                    again = f"hawker sim moves --seeds {seed}-{seed}" + (f" --plant {plant}" if plant else "")
                    shortest = shrink(outcome, kit, tries)
                    for line in story(shortest, len(plan.operations), f"{again} {only_option(shortest)}"):
                        click.echo(line)
                return ExitStatus.FAILED
    return ExitStatus.OK


def _tell(outcome: MoveOutcome, *, trace: bool) -> None:
    for line in outcome.lines if trace else ():
        click.echo(str(line))
    found = f"{len(outcome.found)} found" if outcome.found else "nothing found"
    what = f"{outcome.moves} moves, {outcome.aborted} aborted, {outcome.kills} kills"
    click.echo(f"seed {outcome.plan.seed:6}  {outcome.digest}  {what}: {found}")
    for each in () if trace else outcome.found:
        click.echo(f"  {each}")
