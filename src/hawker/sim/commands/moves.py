"""`hawker sim moves`: moves of machines and volumes between nodes, in virtual time."""

from typing import Any

import click

from hawker.sim.harness.seeded_simulator import SeededSimulator, seeded_options
from hawker.sim.moves.move_bugs import PLANTS
from hawker.sim.moves.move_plan import MovePlan, draw
from hawker.sim.moves.move_run import MoveOutcome, play, shrink
from hawker.sim.node.kit import SOUND, WorkerKit


def _counts(outcome: MoveOutcome) -> dict[str, int]:
    return {"moves": outcome.moves, "aborted": outcome.aborted, "kills": outcome.kills}


_SIMULATOR: SeededSimulator[WorkerKit, MovePlan, MoveOutcome] = SeededSimulator(
    name="moves", plants=PLANTS, sound=SOUND, draw=draw, play=play, shrink=shrink, counts=_counts
)


@click.command("moves")
@seeded_options(PLANTS)
def command(**options: Any) -> int:
    """Play moves between three nodes with their own code, over a network that loses, delays and parts, with daemons
    that are killed, power that fails and disks that lie. Check that each machine and volume has one owner and one
    writer at every moment, and that no acknowledged write is lost. The same seed gives the same run in every process.

    \b
    Examples:
      hawker sim moves
      hawker sim moves --seeds 500
      hawker sim moves --plant grant-not-durable
    """
    return _SIMULATOR.run(**options)
