"""What a seed stands for: the fleet, its network and its storages. Drawn before anything happens."""

from dataclasses import dataclass

from hawker.sim.harness.chance import Chance

FAULTS_S = 6.0


@dataclass(frozen=True, slots=True)
class CatalogPlan:
    """Times are seconds, shares of 1. `strict`: answers are never cut in parts, so that every replica must be, at any
    time, as its owner once was. `codec`: messages go through bytes. `unheard`: of news, beside what is lost anyway, so
    that there is something to pull."""

    seed: int
    nodes: int
    regions: int
    loss: float
    doubled: float
    late: float
    delay_s: float
    writes_per_s: float
    fault_every_s: float
    grace_s: float
    log_txs: int
    strict: bool
    codec: bool
    relapse: bool
    unheard: float


def draw(seed: int, chance: Chance) -> CatalogPlan:
    nodes = chance.weighed({3: 5, 4: 3, 5: 3, 6: 2, 8: 1, 12: 0.4, 30: 0.06})
    return CatalogPlan(
        seed=seed,
        nodes=nodes,
        regions=chance.one_of((1, 1, 2, 3)) if nodes > 3 else 1,
        loss=chance.one_of((0.0, 0.01, 0.1, 0.3)),
        doubled=chance.one_of((0.0, 0.02, 0.2)),
        late=chance.one_of((0.0, 0.1, 0.3)),
        delay_s=chance.one_of((0.001, 0.01, 0.05)),
        writes_per_s=min(25.0, 1.5 * nodes),
        fault_every_s=chance.one_of((0.4, 0.8, 1.6)),
        grace_s=chance.one_of((2.0, 4.0, 1000.0)),
        log_txs=chance.one_of((1, 8, 1000)),
        strict=chance.happens(0.7),
        codec=chance.happens(0.3),
        relapse=chance.happens(0.25),
        unheard=(0.3, 0.0, 0.6, 0.0)[seed % 4],
    )
