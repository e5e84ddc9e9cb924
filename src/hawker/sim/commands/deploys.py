"""`hawker sim deploys`: deploys over several nodes, in virtual time."""

from typing import Any

import click

from hawker.sim.deploys.deploy_bugs import PLANTS
from hawker.sim.deploys.deploy_host import SOUND, DeployKit
from hawker.sim.deploys.deploy_plan import DeployOutcome, DeployRunPlan, draw
from hawker.sim.deploys.deploy_run import play, shrink
from hawker.sim.harness.seeded_simulator import SeededSimulator, seeded_options


def _counts(outcome: DeployOutcome) -> dict[str, int]:
    return {
        "complete": outcome.complete,
        "taken back": outcome.back,
        "ended otherwise": outcome.otherwise,
        "ended elsewhere": outcome.taken,
        "kills": outcome.kills,
    }


_SIMULATOR: SeededSimulator[DeployKit, DeployRunPlan, DeployOutcome] = SeededSimulator(
    name="deploys", plants=PLANTS, sound=SOUND, draw=draw, play=play, shrink=shrink, counts=_counts
)


@click.command("deploys")
@seeded_options(PLANTS)
def command(**options: Any) -> int:
    """Play deploys over four nodes in three regions with their own code, over a network that loses, delays and parts,
    with daemons that are killed and power that fails. Releases are good, crash, or never pass their checks. Check that
    a deploy has one coordinator at a time, takes no more machines away than it may, keeps what was acknowledged, and
    ends with each machine at its release or as it was. The same seed gives the same run in every process.

    \b
    Examples:
      hawker sim deploys
      hawker sim deploys --seeds 500
      hawker sim deploys --plant no-fence
    """
    return _SIMULATOR.run(**options)
