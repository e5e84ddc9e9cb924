"""Runs of the simulator as its tests need them: of chosen operations, and quiet ones."""

from hawker.sim.harness.plan import NATURE
from hawker.sim.worker.plan import WorkerOperation, WorkerPlan, WorkerVerb

ANN = "ann"


def order(at: float = 1.0, label: str = "ann-1", word: str = "no", number: int = 1) -> WorkerOperation:
    return WorkerOperation(number, at, ANN, WorkerVerb.CREATE, label, 256, word)


def call(
    verb: WorkerVerb, at: float, label: str = "ann-1", amount: float = 1.0, word: str = "", number: int = 2
) -> WorkerOperation:
    return WorkerOperation(number, at, ANN, verb, label, amount, word)


def blow(verb: WorkerVerb, at: float, amount: float = 1.0, **fields: object) -> WorkerOperation:
    return WorkerOperation(9, at, NATURE, verb, amount=amount, **fields)  # type: ignore[arg-type]


def plan(*operations: WorkerOperation, seed: int = 1, **fields: object) -> WorkerPlan:
    return WorkerPlan(seed, operations, **fields)  # type: ignore[arg-type]
