"""`hawker sim catalog`: the catalog's replication under faults, and how fast a change spreads, in virtual time."""

from pathlib import Path

import click

from hawker.cli.exits import ExitStatus
from hawker.cli.output import line_of_json, table
from hawker.sim.catalog.host import SOUND_CATALOG
from hawker.sim.catalog.planted import PLANTS
from hawker.sim.catalog.simulation import play
from hawker.sim.catalog.spread import SpreadFigures, spread
from hawker.sim.commands.worker import Seeds
from hawker.sim.harness.planted_bug import kit_of

SEEDS = "1-300"
_HEADINGS = ("hosts", "regions", "loss", "p50", "p99", "all", "copies")


@click.command("catalog")
@click.option("--seeds", type=Seeds(), default=SEEDS, show_default=True, help="The number of seeds, or a range.")
@click.option("--plant", type=click.Choice([plant.name for plant in PLANTS]), metavar="NAME",
              help="Plant this bug in replication.")  # fmt: skip
@click.option("--plants", is_flag=True, help="List the bugs that can be planted.")
@click.option("--files", type=click.Path(path_type=Path, file_okay=False),
              help="Use real files in this directory, and remove them.")  # fmt: skip
@click.option("--spread", "sizes", type=click.IntRange(2, 5_000), multiple=True, metavar="HOSTS",
              help="Measure how a change spreads over this many hosts; may be repeated.")  # fmt: skip
@click.option("--changes", type=click.IntRange(1), default=20, show_default=True, help="Number of measured changes.")
@click.option(
    "--loss", type=click.FloatRange(0, 0.9), default=0.01, show_default=True, help="The share of lost messages."
)
@click.option("--json", "json", is_flag=True, help="Print one object a line for each seed or size.")
def command(
    seeds: range,
    plant: str | None,
    plants: bool,
    files: Path | None,
    sizes: tuple[int, ...],
    changes: int,
    loss: float,
    json: bool,
) -> int:
    """Play fleets of 3 to 30 catalogs that lose messages, links, hosts and disks, and say where replicas did not become
    alike or were what their owner never was. Ends with 1 when something was found.

    \b
    Examples:
      hawker sim catalog
      hawker sim catalog --seeds 100000
      hawker sim catalog --seeds 40-60 --plant no-fence
      hawker sim catalog --spread 10 --spread 100
    """
    if plants:
        click.echo("\n".join(plant.name for plant in PLANTS))
        return ExitStatus.OK
    if sizes:
        _measure([spread(hosts, regions=_regions(hosts), loss=loss, changes=changes) for hosts in sizes], json=json)
        return ExitStatus.OK
    kit = kit_of(PLANTS, plant, SOUND_CATALOG)
    broken = 0
    for seed in seeds:
        played = play(seed, kit=kit, files=files)
        broken += played.found is not None
        if json:
            click.echo(line_of_json({"seed": seed, "found": played.found, "seconds": played.seconds}))
        elif played.found is not None:
            click.echo(f"seed {seed}, {played.plan.nodes} nodes, after {played.seconds:.1f} s: {played.found}")
    if not json:
        click.echo(f"{len(seeds)} seeds played, {broken} with a finding")
    return ExitStatus.FAILED if broken else ExitStatus.OK


def _regions(hosts: int) -> int:
    return next(regions for most, regions in ((4, hosts), (20, 5), (200, 10), (5_000, 30)) if hosts <= most)


def _measure(found: list[SpreadFigures], *, json: bool) -> None:
    if json:
        for each in found:
            click.echo(line_of_json(each))
        return
    rows = [
        (
            each.hosts,
            each.regions,
            f"{each.loss:.0%}",
            *(f"{1000 * seconds:.0f} ms" for seconds in (each.p50_s, each.p99_s, each.all_s)),
            f"{each.copies:.1f}",
        )
        for each in found
    ]
    click.echo(table(_HEADINGS, rows))
