"""What is said of a run of a fleet: one line, one object, and the command that plays it once more."""

from dataclasses import dataclass

from hawker.sim.fleet.plan import MINUTES
from hawker.sim.fleet.simulation import FleetOutcome
from hawker.sim.harness.report import only_option


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRequest:
    """How the plans of a run were drawn."""

    minutes: float = MINUTES
    nodes: int | None = None
    plant: str | None = None
    light: bool = False


def summary(outcome: FleetOutcome) -> str:
    return (
        f"seed {outcome.plan.seed}: {outcome.plan.nodes} nodes, {outcome.operations} operations,"
        f" {outcome.filled} orders filled, {outcome.calls} calls, {outcome.blows} faults,"
        f" {outcome.kills} daemons killed, {outcome.takeovers} takeovers,"
        f" {outcome.ended_at:.0f} s, digest {outcome.digest}"
        f"{', FOUND' if outcome.found else ''}"
    )


def report_of(outcome: FleetOutcome) -> dict[str, object]:
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


def repeat(shortest: FleetOutcome, of: int, asked: FleetRequest) -> str:
    """`of`: among so many nodes the seed plays."""
    seed, nodes = shortest.plan.seed, shortest.plan.nodes
    words = ["hawker sim fleet", f"--seeds {seed}-{seed}"]
    words += [f"--nodes {asked.nodes}"] if asked.nodes is not None else []
    words += ["--light"] if asked.light else []
    words += [f"--minutes {asked.minutes:g}"] if asked.minutes != MINUTES else []
    words += [f"--plant {asked.plant}"] if asked.plant else []
    words += [f"--narrow {nodes}"] if nodes != of else []
    words += [only_option(shortest)]
    return " ".join(words)
