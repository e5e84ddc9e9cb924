"""`hawker sim networks`: private networks and host names of several hosts, in virtual time."""

from typing import Any

import click

from hawker.sim.harness.seeded_simulator import SeededSimulator, seeded_options
from hawker.sim.networks.network_bugs import PLANTS
from hawker.sim.networks.network_host import NetworkParts
from hawker.sim.networks.networks_plan import NetworksOutcome, NetworksPlan, draw
from hawker.sim.networks.networks_run import SOUND, play, shrink


def _counts(outcome: NetworksOutcome) -> dict[str, int]:
    return {"apps": outcome.apps, "refused": outcome.refused, "answers": outcome.answers, "shown": outcome.shown}


_SIMULATOR: SeededSimulator[NetworkParts, NetworksPlan, NetworksOutcome] = SeededSimulator(
    name="networks", plants=PLANTS, sound=SOUND, draw=draw, play=play, shrink=shrink, counts=_counts
)


@click.command("networks")
@seeded_options(PLANTS)
def command(**options: Any) -> int:
    """Play private networks over four hosts with the nodes' own code: whose number each is, where names lead, the ways
    between hosts, and which certificate is shown for a host name; while machines stop, move and go, homes are lost, a
    node is restored, links are cut, and rows and answers come late or not at all. The same seed gives the same run in
    every process.

    \b
    Examples:
      hawker sim networks
      hawker sim networks --seeds 500
      hawker sim networks --plant way-kept
    """
    return _SIMULATOR.run(**options)
