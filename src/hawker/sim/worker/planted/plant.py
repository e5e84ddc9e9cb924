"""What a planted bug is: a worker with one part of another kind, and what must be found in it."""

from dataclasses import dataclass

from hawker.proof.violation import Invariant
from hawker.sim.node.kit import WorkerKit


@dataclass(frozen=True, slots=True)
class Plant:
    """`what` says in a sentence what is wrong; `breaks` are the invariants of which the first finding must be one."""

    name: str
    what: str
    kit: WorkerKit
    breaks: frozenset[Invariant]
