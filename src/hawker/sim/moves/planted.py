"""The planted bugs of moves."""

from hawker.sim.harness.planted_bug import PlantedBug
from hawker.sim.node.kit import WorkerKit

PLANTS: tuple[PlantedBug[WorkerKit], ...] = ()
