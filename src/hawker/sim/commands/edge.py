"""`hawker sim edge`: edges of several hosts, in virtual time."""

from typing import Any

import click

from hawker.sim.edge.edge_bugs import PLANTS
from hawker.sim.edge.edge_plan import EdgeOutcome, EdgePlan, draw
from hawker.sim.edge.edge_run import SOUND, play, shrink
from hawker.sim.edge.played_host import EdgeKit
from hawker.sim.harness.seeded_simulator import SeededSimulator, seeded_options


def _counts(outcome: EdgeOutcome) -> dict[str, int]:
    return {"served": outcome.served, "refused": outcome.refused, "cut": outcome.cut, "wakes": outcome.wakes}


_SIMULATOR: SeededSimulator[EdgeKit, EdgePlan, EdgeOutcome] = SeededSimulator(
    name="edge", plants=PLANTS, sound=SOUND, draw=draw, play=play, shrink=shrink, counts=_counts
)


@click.command("edge")
@seeded_options(PLANTS)
def command(**options: Any) -> int:
    """Play edges of three hosts with their own code, from a client's bytes to the machine's, before machines that stop,
    crash, rest and are woken; with edges and daemons that are killed, power that fails and links that are cut. Check
    what reaches machines and what clients hear. The same seed gives the same run in every process.

    \b
    Examples:
      hawker sim edge
      hawker sim edge --seeds 500
      hawker sim edge --plant wakes-all
    """
    return _SIMULATOR.run(**options)
