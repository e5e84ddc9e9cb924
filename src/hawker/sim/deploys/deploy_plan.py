"""What a seed stands for: four hosts, an app with eight machines, deploys of it, and what befalls them. Blows come in
the seconds around a deploy, or at a place in it: an edge of a step, a point inside one, a call that passes.
"""

from enum import StrEnum
from typing import Any, Protocol

import msgspec

from hawker.api.contract.deploy import CreateDeployRequest
from hawker.sim.deploys.deploy_host import REGIONS
from hawker.sim.harness.plan import Chance, RunOperation, RunOutcome, RunPlan
from hawker.sim.harness.seeded_run import drawn

HOSTS = len(REGIONS)
RUN_S = 300.0
EVERY_HOST = "0"
"""The label of what is done to all hosts."""
_ACTOR = "world"
UNREADY, UNREADY_FAR, OWN_PORT = 9090, 9091, 20_000
"""Ports of checks: one that never passes, one that never does outside of the first region, and the first of those that
each release has for itself."""
_WAIT = "60s"


class DeployVerb(StrEnum):
    """`refuse` is an order of a deploy that cannot be; `exit`: the program of one machine at a host ends by itself;
    `ambush` waits for a place; `fall`: the newest release does not pass its checks from now on; `lease`: a client
    holds the machines of a host; `doubt`: the other hosts take one that lives for down."""

    DEPLOY = "deploy"
    REFUSE = "refuse"
    EXIT = "exit"
    ABORT = "abort"
    KEEP = "keep"
    PAUSE = "pause"
    KILL = "kill"
    POWER = "power"
    BOOT = "boot"
    CUT = "cut"
    HEAL = "heal"
    LATE = "late"
    LOSE = "lose"
    AMBUSH = "ambush"
    FALL = "fall"
    LEASE = "lease"
    DOUBT = "doubt"


class DeployBlow(StrEnum):
    """What an ambush does to the host that comes by. `part` cuts it off from all others; `depose` does so to the other
    voters alone, and begins their daemons anew; `turn` has a person abort the deploy, `hold` pause it; `fail` is
    `fall` above."""

    KILL = "kill"
    POWER = "power"
    PART = "part"
    DEPOSE = "depose"
    TURN = "turn"
    HOLD = "hold"
    FAIL = "fail"


_WEIGHTS = {
    DeployVerb.DEPLOY: 8.0,
    DeployVerb.REFUSE: 1.0,
    DeployVerb.EXIT: 2.0,
    DeployVerb.ABORT: 1.0,
    DeployVerb.KEEP: 0.5,
    DeployVerb.PAUSE: 1.0,
    DeployVerb.KILL: 3.0,
    DeployVerb.POWER: 1.0,
    DeployVerb.CUT: 2.0,
    DeployVerb.LATE: 7.0,
    DeployVerb.LOSE: 1.0,
    DeployVerb.AMBUSH: 12.0,
    DeployVerb.FALL: 1.0,
    DeployVerb.LEASE: 3.0,
    DeployVerb.DOUBT: 1.0,
}
_LATE = (
    "update_machine",
    "update_machine",
    "update_machine",
    "delete_machine",
    "write_deploy_register",
    "accept_order",
    "accept_order",
    "cordon_machine",
    "uncordon_machine",
)
_CALLS = (
    "update_machine",
    "write_deploy_register",
    "grant_deploy_term",
    "announce_deploy_term",
    "accept_order",
    "delete_machine",
    "uncordon_machine",
)
PLACES = (
    "deploy.release_command before",
    "deploy.release_command ordered",
    "deploy.release_command after",
    "deploy.canary begun",
    "deploy.canary changed",
    "deploy.canary after",
    "deploy.move begun",
    "deploy.move changed",
    "deploy.move after",
    "deploy.switch before",
    "deploy.switch switched",
    "deploy.switch after",
    "deploy.tidy before",
    "deploy.tidy after",
    "deploy.settle before",
    "deploy.settle after",
    "deploy_back.take_back before",
    "deploy_back.take_back returning",
    "deploy_back.take_back returned",
    "deploy_back.settle_back before",
    "deploy_back.settle_back after",
)
"""Edges of steps, and points inside them."""
_KINDS = ("good", "good", "command", "crash", "crash", "unready", "unready_far", "late_far")
REFUSED = ("unknown key", "too many", "no volume", "no image", "no such region")
"""What is wrong with an order."""
_GATED = ("rolling", "rolling", "canary", "bluegreen")
_STRATEGIES = ("rolling", "rolling", "rolling", "canary", "bluegreen", "immediate")


class DeployOperation(RunOperation[DeployVerb], frozen=True):
    """`label` is a host's number, `word` what else the verb takes."""


class DeployRunPlan(RunPlan[DeployOperation], frozen=True):
    """Four hosts, and an app with eight machines of one group."""


class DeployOutcome(RunOutcome[DeployRunPlan], frozen=True, kw_only=True):
    """Deploys that were `complete`, `back` as it was before, and ended otherwise; how many were `taken` over by
    another node, and `kills` of daemons."""

    complete: int
    back: int
    otherwise: int
    taken: int
    kills: int


def draw(seed: int) -> DeployRunPlan:
    return DeployRunPlan(seed=seed, operations=drawn(seed, RUN_S, _WEIGHTS, _drawn_at))


def _drawn_at(chance: Chance, verb: DeployVerb, at: float) -> tuple[list[DeployOperation], float]:
    host = str(chance.between(1, HOSTS) if chance.happens(0.6) else 1)
    operations: list[DeployOperation] = []

    def then(after_s: float, what: DeployVerb, who: str = host, amount: float = 0.0, word: str = "") -> None:
        operations.append(DeployOperation(0, at + after_s, _ACTOR, what, who, amount, word))

    match verb:
        case DeployVerb.DEPLOY:
            then(0.0, verb, word=_release(chance))
        case DeployVerb.REFUSE:
            then(0.0, verb, word=chance.one_of(REFUSED))
        case DeployVerb.EXIT:
            then(0.0, DeployVerb.DEPLOY, word="good rolling")
            then(chance.one_of((2.0, 5.0, 9.0)), verb, "1")
        case DeployVerb.LATE:
            _late(chance, then)
        case DeployVerb.CUT:
            lasts = float(chance.between(1, 90))
            then(0.0, verb, amount=lasts, word=str(chance.between(1, HOSTS)))
            then(lasts, DeployVerb.HEAL)
        case DeployVerb.AMBUSH:
            _ambush(chance, then)
        case DeployVerb.PAUSE:
            then(0.0, verb, amount=float(chance.between(1, 60)))
        case DeployVerb.LEASE:
            _lease(chance, then)
        case DeployVerb.DOUBT:
            then(0.0, verb, amount=float(chance.between(5, 40)))
        case DeployVerb.KILL | DeployVerb.POWER | DeployVerb.LOSE:
            lasts = float(chance.between(1, 90))
            then(0.0, verb, amount=lasts, word=chance.one_of(("0", "0.5", "1")))
            then(lasts, DeployVerb.HEAL if verb is DeployVerb.LOSE else DeployVerb.BOOT)
        case _:
            then(0.0, verb)
    scene = verb in (DeployVerb.AMBUSH, DeployVerb.LATE, DeployVerb.LEASE, DeployVerb.EXIT)
    return operations, at + chance.one_of((25.0, 50.0) if scene else (0.2, 1.0, 3.0, 8.0, 20.0))


def _release(chance: Chance) -> str:
    kind = chance.one_of(_KINDS)
    return f"{kind} {chance.one_of(_STRATEGIES if kind == 'good' else _GATED)}"


def _late(chance: Chance, then: "Then") -> None:
    """A call of a deploy comes late, when it has been taken back or has ended, by the same coordinator or another."""
    route = chance.one_of(_LATE)
    then(0.0, DeployVerb.LATE, word=route)
    fitting = {"accept_order": "late_far bluegreen", "cordon_machine": "good bluegreen"}
    fitting["uncordon_machine"] = fitting["cordon_machine"]
    then(0.1, DeployVerb.DEPLOY, "1", word=fitting.get(route, "good rolling"))
    if chance.happens(0.5):
        then(chance.one_of((0.5, 2.0, 6.0, 25.0)), DeployVerb.ABORT, "2")
    if chance.happens(0.5):
        then(chance.one_of((0.6, 4.0, 8.0)), DeployVerb.KILL, "1", word="1")
        then(chance.one_of((2.0, 40.0)) + 8.0, DeployVerb.BOOT, "1")


def _ambush(chance: Chance, then: "Then") -> None:
    """Something befalls whoever comes by a place the second or third time, or the first."""
    place, blow = chance.one_of(PLACES if chance.happens(0.7) else _CALLS), chance.one_of(tuple(DeployBlow))
    then(0.0, DeployVerb.AMBUSH, word=f"{place}|{chance.one_of((1, 1, 2, 3))}|{blow}")
    lasts = float(chance.between(1, 60))
    kinds = {
        "accept": "good bluegreen",
        "canary": "good canary",
        "switch": "good bluegreen",
        "back": "crash rolling",
        "release": "command rolling",
    }
    fitting = next((word for part, word in kinds.items() if part in place), _release(chance))
    then(0.1, DeployVerb.DEPLOY, "1", word=fitting)
    then(5.0 + lasts, DeployVerb.HEAL)
    then(5.0 + lasts, DeployVerb.BOOT, EVERY_HOST)


def _lease(chance: Chance, then: "Then") -> None:
    """A client holds machines of the second host while they are to change, so that they are asked again and again;
    meanwhile the coordinator is cut off from the other voters, and those begin anew."""
    then(0.0, DeployVerb.LEASE, "2", 60.0)
    then(0.2, DeployVerb.AMBUSH, "2", word=f"update_machine|{2 * chance.between(1, 4)}|{DeployBlow.DEPOSE}")
    then(0.3, DeployVerb.DEPLOY, "1", word="good rolling")
    then(30.0 + chance.between(1, 30), DeployVerb.HEAL)


class Then(Protocol):
    def __call__(
        self, after_s: float, what: DeployVerb, who: str = ..., amount: float = ..., word: str = ...
    ) -> None: ...


# What is ordered.


def order_of(operation: DeployOperation) -> CreateDeployRequest:
    kind, strategy = operation.word.split()
    words = {"definition": _definition(kind, operation.number), "image": "hawker/hello", "strategy": strategy}
    return msgspec.convert(words, CreateDeployRequest)


def hopeless_order(operation: DeployOperation) -> CreateDeployRequest:
    """An order with something wrong, as `word` says."""
    found: dict[str, Any] = {"definition": {"env": {"OF": str(operation.number)}}, "image": "hawker/hello"}
    match operation.word:
        case "unknown key":
            found["definition"] |= {"no_such_section": 1}
        case "too many":
            found["counts"] = {"app": 5000}
        case "no volume":
            found["definition"] |= {"processes": {"app": "", "db": ""}}
            found["definition"] |= {"mounts": [{"source": "data", "destination": "/data", "processes": ["db"]}]}
        case "no image":
            del found["image"]
        case "no such region":
            found["definition"] |= {"primary_region": "nowhere", "processes": {"app": "", "more": ""}}
    return msgspec.convert(found, CreateDeployRequest)


def _definition(kind: str, number: int) -> dict[str, Any]:
    """What a fly.toml of that kind says."""
    ports = {"unready": UNREADY, "unready_far": UNREADY_FAR, "late_far": UNREADY_FAR}
    grace = "8s" if kind == "late_far" or (kind == "unready" and number % 2) else "1s"
    check: dict[str, Any] = {"type": "tcp", "interval": "2s", "timeout": "1s", "grace_period": grace}
    check["port"] = ports.get(kind, OWN_PORT + number)
    found: dict[str, Any] = {
        "env": {"OF": str(number)},
        "checks": {"up": check},
        "restart": [{"policy": "always"}],
        "deploy": {"wait_timeout": _WAIT},
        "hawker": {"deploy": {"smoke": "4s", "smoke_rest": "1s", "bake": "3s"}},
    }
    if kind == "command":
        found["deploy"] |= {"release_command": "exit 0"}
    if kind == "crash":
        found["experimental"] = {"cmd": ["exit", "3"]}
    return found
