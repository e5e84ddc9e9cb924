"""What a seed stands for: four hosts, apps on private networks of which each two come to one number, their machines and
host names, and what fails."""

from enum import StrEnum

from hawker.sim.harness.plan import Chance, RunOperation, RunOutcome, RunPlan
from hawker.sim.harness.seeded_run import drawn

HOSTS = 4
RUN_S = 60.0
_ACTOR = "world"


class NetworksVerb(StrEnum):
    APP = "app"
    MACHINE = "machine"
    STOP = "stop"
    START = "start"
    MOVE = "move"
    DESTROY = "destroy"
    CERTIFICATE = "certificate"
    REMOVE = "remove"
    NEXT_HOME = "next-home"
    RESTORE = "restore"
    POWER = "power"
    CUT = "cut"
    LATE = "late"


_WEIGHTS = {
    NetworksVerb.APP: 6.0,
    NetworksVerb.MACHINE: 10.0,
    NetworksVerb.STOP: 6.0,
    NetworksVerb.START: 6.0,
    NetworksVerb.MOVE: 6.0,
    NetworksVerb.DESTROY: 4.0,
    NetworksVerb.CERTIFICATE: 6.0,
    NetworksVerb.REMOVE: 3.0,
    NetworksVerb.NEXT_HOME: 2.0,
    NetworksVerb.RESTORE: 1.0,
    NetworksVerb.POWER: 2.0,
    NetworksVerb.CUT: 3.0,
    NetworksVerb.LATE: 2.0,
}
PAIRS = (
    ("crow", "n10873"),
    ("bolt", "n22368"),
    ("bolt", "n17867"),
    ("acme", "n24994"),
    ("acme", "n25007"),
    ("crow", "n25769"),
)
"""Organizations and networks: each two, in this order, have the same first number."""
HOSTNAMES = ("a.example.com", "b.example.com", "*.example.com")
ASKED = ("a.example.com", "b.example.com", "c.example.com")
APPS = tuple(f"app{number}" for number in range(1, 9))


class NetworksOperation(RunOperation[NetworksVerb], frozen=True):
    """`label` is a host's number, `amount` how many or how long, `word` the rest."""


class NetworksPlan(RunPlan[NetworksOperation], frozen=True):
    """Four hosts."""


class NetworksOutcome(RunOutcome[NetworksPlan], frozen=True, kw_only=True):
    """`apps` were made, and `refused` not; `answers` of resolvers were judged, `shown` certificates."""

    apps: int
    refused: int
    answers: int
    shown: int


def draw(seed: int) -> NetworksPlan:
    return NetworksPlan(seed=seed, operations=drawn(seed, RUN_S, _WEIGHTS, _drawn_at))


def _drawn_at(chance: Chance, verb: NetworksVerb, at: float) -> tuple[list[NetworksOperation], float]:
    host, word, amount = str(chance.between(1, HOSTS)), "", float(chance.between(1, 20))

    def made(label: str, said: str, when: float = at) -> NetworksOperation:
        return NetworksOperation(0, when, _ACTOR, verb, label, amount, said)

    match verb:
        case NetworksVerb.APP:
            first = 2 * chance.between(0, len(PAIRS) // 2 - 1)
            gap, turn = chance.one_of((0.0, 0.001, 0.01, 0.05, 5.0)), chance.between(0, 1)
            both = [
                made(str(chance.between(1, HOSTS)), " ".join((chance.one_of(APPS), *PAIRS[first + place])), when)
                for place, when in ((turn, at), (1 - turn, at + gap))
            ]
            return both, at + 0.5
        case NetworksVerb.MACHINE:
            word = chance.one_of(APPS)
        case NetworksVerb.STOP | NetworksVerb.START | NetworksVerb.DESTROY | NetworksVerb.MOVE:
            word = str(chance.between(0, 99))  # which of those that there are
        case NetworksVerb.CERTIFICATE:
            word = f"{chance.one_of(HOSTNAMES)} {chance.one_of(APPS)}"
            amount = float(chance.one_of((15, 40, 90, 600)))
        case NetworksVerb.REMOVE:
            word = chance.one_of(HOSTNAMES)
        case NetworksVerb.NEXT_HOME:
            word, amount = str(chance.between(0, 99)), float(chance.one_of((90, 600)))
        case NetworksVerb.CUT:
            word = str(chance.between(1, HOSTS))
        case NetworksVerb.RESTORE:
            host = "1"  # one keeper forgets, and never two
        case _:
            pass
    return [made(host, word)], at + chance.one_of((0.01, 0.2, 1.0, 3.0))
