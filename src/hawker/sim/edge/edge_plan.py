"""What a seed stands for: three hosts of one region or of two, nine apps, requests of clients, and what fails."""

from collections.abc import Sequence
from enum import StrEnum
from functools import partial

from msgspec.structs import replace

from hawker.proof.edge_checks import WAKE_S
from hawker.sim.edge.played_apps import (
    DATAGRAM_MACHINES,
    DATAGRAM_PORTS,
    HIDDEN,
    IDLE_S,
    MACHINES,
    NETWORK,
    OTHER_NETWORK,
    PORTS,
)
from hawker.sim.edge.played_machine import HOME
from hawker.sim.harness.loop import LoopClock
from hawker.sim.harness.plan import Chance, RunOperation, RunOutcome, RunPlan, numbered
from hawker.sim.harness.seeded_run import drawn

HOSTS = 3
RUN_S = 90.0
RESTORED_S = 10.0
"""After somebody stopped a machine that was to run: another one does."""
FAILS_S = 20.0
"""A refusal of this length is said to nobody: starts are accepted, and come to nothing."""
WELL_S = 7.0
"""After what hindered somebody is over all is well again."""
_LONG_REFUSAL_S = IDLE_S + WAKE_S + 45.0
_ACTOR = "world"
ABROAD = "ams"
_OF_TWO_REGIONS = (6, 7)
"""Of eight seeds."""
_OF_PRIVATE = (4, 5)
"""Of eight seeds, too. In every second one of each kind no host has a packet filter: edges have to tell."""
_OF_DATAGRAMS = (0, 9, 10, 15)
"""Of sixteen seeds."""
_OF_RESTS = 3
"""Of sixteen seeds, too."""
FORCED, PREFERRED = STEERED = ("force", "prefer")
"""How a request says which region it is for."""


class EdgeVerb(StrEnum):
    ASK = "ask"
    PRIVATE = "private"
    BURST = "burst"
    STOP = "stop"
    START = "start"
    CRASH = "crash"
    CORDON = "cordon"
    FLAP = "flap"
    DAEMON = "daemon"
    EDGE = "edge"
    POWER = "power"
    CUT = "cut"
    LATE = "late"
    REFUSE = "refuse"
    SLOW = "slow"
    LEASE = "lease"
    FLOW = "flow"
    LOSS = "loss"


_WEIGHTS = {
    EdgeVerb.ASK: 60.0,
    EdgeVerb.BURST: 8.0,
    EdgeVerb.STOP: 4.0,
    EdgeVerb.START: 3.0,
    EdgeVerb.CRASH: 3.0,
    EdgeVerb.CORDON: 2.0,
    EdgeVerb.FLAP: 2.0,
    EdgeVerb.DAEMON: 2.0,
    EdgeVerb.EDGE: 2.0,
    EdgeVerb.POWER: 0.6,
    EdgeVerb.CUT: 0.6,
    EdgeVerb.LATE: 2.0,
    EdgeVerb.REFUSE: 3.0,
    EdgeVerb.SLOW: 1.0,
    EdgeVerb.LEASE: 2.0,
}
_WEIGHTS_OF_TWO = _WEIGHTS | {EdgeVerb.EDGE: 8.0}
ALL, OTHER_NUMBER = "all", "other"
"""Of a host's edge processes: all are killed and replaced; or by one where there were two, and by two where one was. A
number is that one's."""
_ONE = (ALL,)
_REPLACED = (ALL, "0", "1", OTHER_NUMBER, "0", "1")
_METHODS = {"GET": 6.0, "POST": 4.0, "PUT": 1.0}
_WORDS = {
    "ok": 10.0,
    "pieces": 2.0,
    "break": 1.0,
    "upgrade": 1.0,
    "machine": 1.0,
    "app": 1.0,
    "loop": 0.3,
    "guess": 1.0,
}
_ASKED = tuple(app for app in PORTS if app != HIDDEN)


class EdgeOperation(RunOperation[EdgeVerb], frozen=True):
    """`label` is a host's number or a machine, `amount` how many or how long, `word` the rest."""


class EdgePlan(RunPlan[EdgeOperation], frozen=True):
    """Three hosts and nine apps. `processes` are the edge processes of each host in the beginning, `regions` where each
    is. `filtered`: hosts drop what comes to a private address from another network. `datagrams`: there are apps of
    UDP, too."""

    processes: tuple[int, ...] = (1,) * HOSTS
    regions: tuple[str, ...] = (HOME,) * HOSTS
    filtered: bool = True
    datagrams: bool = False


class EdgeOutcome(RunOutcome[EdgePlan], frozen=True, kw_only=True):
    """`served` requests got 200, `refused` another status, `cut` no answer; `wakes` are starts of machines."""

    served: int
    refused: int
    cut: int
    wakes: int


def draw(seed: int) -> EdgePlan:
    """With one edge process a host where the seed is odd; else two hosts have two, and which one has not changes. Two
    of eight seeds, one of either kind, have a host in another region, and which one changes."""
    if seed % 2:
        operations = drawn(seed, RUN_S, _WEIGHTS, partial(_drawn_at, _ONE))
        return _at_first_rests(_with_datagrams(_with_private(_in_regions(EdgePlan(seed=seed, operations=operations)))))
    alone = seed // 2 % HOSTS
    plan = EdgePlan(
        seed=seed,
        operations=drawn(seed, RUN_S, _WEIGHTS_OF_TWO, partial(_drawn_at, _REPLACED)),
        processes=tuple(1 if host == alone else 2 for host in range(HOSTS)),
    )
    return _with_datagrams(_with_private(_in_regions(plan)))


def _at_first_rests(plan: EdgePlan) -> EdgePlan:
    """Some requests come in the moment in which machines rest that nobody has asked for: closed already, and still
    up. It is too short for others to meet it often."""
    if plan.seed % 16 != _OF_RESTS:
        return plan
    asked = [
        EdgeOperation(0, IDLE_S + after, _ACTOR, EdgeVerb.ASK, host, 1.0, f"{app} GET ok 100 1")
        for after in (0.002, 0.01, 0.02, 0.03, 0.04)
        for host, app in (("1", "lazy"), ("2", "lazy"), ("3", "herd"))
    ]
    operations = sorted((*plan.operations, *asked), key=lambda each: each.at)
    return replace(plan, operations=numbered(operations))


def _with_datagrams(plan: EdgePlan) -> EdgePlan:
    """Some requests are flows of datagrams, and what befalls machines befalls those, too, while somebody sends. It is
    drawn apart from all else. A flow's word is its app, how many datagrams it has, and the pause between them."""
    if plan.seed % 16 not in _OF_DATAGRAMS:
        return plan
    chance, changed = Chance(LoopClock(plan.seed)), list[EdgeOperation]()
    for each in plan.operations:
        if each.verb is EdgeVerb.ASK and chance.happens(0.3):
            app, count = chance.one_of(tuple(DATAGRAM_PORTS)), chance.one_of((1, 3, 3, 10, 40))
            pause_s = chance.one_of((0.05, 0.5, 2.0) if count > 3 else (0.5, IDLE_S + 3.0, 2 * IDLE_S + 3.0))
            changed.append(replace(each, verb=EdgeVerb.FLOW, word=f"{app} {count} {pause_s:g}"))
        elif each.verb in (EdgeVerb.STOP, EdgeVerb.CRASH, EdgeVerb.CORDON, EdgeVerb.START) and chance.happens(0.7):
            name = chance.one_of(tuple(DATAGRAM_MACHINES))
            if each.verb is EdgeVerb.STOP:
                sends = {"verb": EdgeVerb.FLOW, "amount": 2.0, "word": f"{name[:-1]} 100 0.005"}
                at = each.at - 0.2
                changed.append(replace(each, at=at, label=str(DATAGRAM_MACHINES[name][0]), **sends))
            changed.append(replace(each, word=name))
        elif each.verb is EdgeVerb.LATE and chance.happens(0.5):
            changed.append(replace(each, verb=EdgeVerb.LOSS))
        else:
            changed.append(each)
    return replace(plan, operations=numbered(changed), datagrams=True)


def _with_private(plan: EdgePlan) -> EdgePlan:
    """Some requests are a machine's, at a private address of an app; that is drawn apart from all else, too. The word
    begins with the asker's network, the address's, and the app that the request names: where the networks are two, or
    the address is another app's, it is to reach nobody."""
    if plan.seed % 8 not in _OF_PRIVATE:
        return plan
    chance = Chance(LoopClock(plan.seed))

    def private(ask: EdgeOperation) -> EdgeOperation:
        asker = OTHER_NETWORK if chance.happens(0.4) else NETWORK
        app, _, rest = ask.word.partition(" ")
        if asker == OTHER_NETWORK and chance.happens(0.6):
            app = "other"
        network = chance.one_of((NETWORK, OTHER_NETWORK)) if app == "other" else NETWORK
        named = chance.one_of(_ASKED) if chance.happens(0.4) else app
        host = "3" if asker == OTHER_NETWORK else ask.label
        return replace(ask, verb=EdgeVerb.PRIVATE, label=host, word=f"{asker} {network} {named} {app} {rest}")

    operations = tuple(
        private(each) if each.verb is EdgeVerb.ASK and chance.happens(0.4) else each for each in plan.operations
    )
    return replace(plan, operations=operations, filtered=plan.seed // 8 % 2 == 0)


def _in_regions(plan: EdgePlan) -> EdgePlan:
    """Some requests say which region they are for, where there are two; it is drawn apart from all else."""
    if plan.seed % 8 not in _OF_TWO_REGIONS:
        return plan
    away, chance = plan.seed // 8 % HOSTS, Chance(LoopClock(plan.seed))
    operations = tuple(
        replace(each, word=f"{each.word} {chance.one_of(STEERED)}:{chance.one_of((HOME, ABROAD))}")
        if each.verb is EdgeVerb.ASK and chance.happens(0.3)
        else each
        for each in plan.operations
    )
    return replace(plan, operations=operations, regions=tuple(ABROAD if n == away else HOME for n in range(HOSTS)))


def _drawn_at(replaced: Sequence[str], chance: Chance, verb: EdgeVerb, at: float) -> tuple[list[EdgeOperation], float]:
    if verb is EdgeVerb.BURST and chance.happens(0.5):
        at += IDLE_S + 5.0  # who can rest, rests
    host, word, amount = str(chance.between(1, HOSTS)), "", float(chance.between(1, 15))
    match verb:
        case EdgeVerb.ASK:
            word = " ".join(
                (
                    chance.one_of(_ASKED),
                    chance.weighed(_METHODS),
                    chance.weighed(_WORDS),
                    str(chance.one_of((0, 1, 10, 100, 400, 1500, 4000))),
                    str(chance.between(1, 9)),
                )
            )
            amount = float(chance.one_of((1, 1, 1, 2, 4, 8)))
        case EdgeVerb.BURST:
            word, amount = "lazy", float(chance.one_of((1, 1, 2, 2, 4, 12)))
            host = chance.one_of(("1", "1", host))
            if chance.happens(0.3):
                host, word = "3", "herd"  # more of them than a host starts at once
        case EdgeVerb.STOP | EdgeVerb.START | EdgeVerb.CRASH | EdgeVerb.CORDON | EdgeVerb.FLAP:
            word = chance.one_of(tuple(MACHINES))
        case EdgeVerb.EDGE:
            word = replaced[int(amount) % len(replaced)]
        case EdgeVerb.CUT:
            word = str(chance.between(1, HOSTS))
        case EdgeVerb.REFUSE:
            amount = chance.one_of((2.0, FAILS_S, _LONG_REFUSAL_S))
        case EdgeVerb.LEASE:
            amount = 2 * IDLE_S
        case _:
            pass
    fails = verb is EdgeVerb.REFUSE and amount == FAILS_S
    if fails:
        at, host = at + IDLE_S + 5.0, "1"
    kept = verb is EdgeVerb.STOP and bool(MACHINES[word][1].get("least"))
    if kept:
        at += IDLE_S + 5.0  # the others rest
    operations = []
    if verb in (EdgeVerb.POWER, EdgeVerb.CUT):  # who is in there just then
        other = host if verb is EdgeVerb.CUT else str(int(host) % HOSTS + 1)
        for method in ("GET", "POST"):
            operations.append(EdgeOperation(0, at, _ACTOR, EdgeVerb.ASK, other, 6.0, f"steady {method} ok 4000 1"))
        at += 0.3
    operations.append(EdgeOperation(0, at, _ACTOR, verb, host, amount, word))
    if kept:
        at += RESTORED_S  # nobody asks, and as many as are to run do all the same
    elif verb is EdgeVerb.STOP and word[:-1] in _ASKED:  # who comes just then
        app, place = word[:-1], str(MACHINES[word][0])
        for after in (0.01, 0.03, 0.06, 0.1):
            operations.append(EdgeOperation(0, at + after, _ACTOR, EdgeVerb.ASK, place, 1.0, f"{app} GET ok 1 1"))
    if verb is EdgeVerb.REFUSE:
        more, at = _after_refusal(host, amount, at)
        operations += more
    if verb is EdgeVerb.BURST and amount == 1.0 and chance.happens(0.5):  # who comes just before a rest, and stays
        at += IDLE_S - 1.0
        operations.append(EdgeOperation(0, at, _ACTOR, EdgeVerb.ASK, host, 1.0, f"{word} GET ok 4000 1"))
    gap = 1.0 if verb is EdgeVerb.BURST else chance.one_of((0.0, 0.001, 0.01, 0.05, 0.2, 0.5, 2.0))
    return operations, at + gap


def _after_refusal(host: str, seconds: float, at: float) -> tuple[list[EdgeOperation], float]:
    """Who sleeps is asked for while nobody is started, and once all is well again."""
    asked, operations = partial(EdgeOperation, 0, actor=_ACTOR, verb=EdgeVerb.ASK, label=host, amount=1.0), []
    if seconds == FAILS_S:
        operations = [asked(at=at + after, word="lazy GET ok 1 1") for after in (1.0, FAILS_S + WELL_S + 1.0)]
        at += FAILS_S + WELL_S + 2.0
    if seconds > WAKE_S:
        at += IDLE_S + 5.0
        operations = [asked(at=at, word="lazy GET ok 1 1"), *_asked_again(at)]
        operations.append(asked(at=at + WAKE_S + 15.0, word="steady GET ok 1 1"))  # who waits has given up
    return operations, at


def _asked_again(at: float) -> list[EdgeOperation]:
    """Who waits at another host, over a connection that was there before, when the edge of that host is replaced."""
    return [
        EdgeOperation(0, at, _ACTOR, EdgeVerb.ASK, "3", 4.0, "tight GET ok 10 1"),  # two of them there
        EdgeOperation(0, at + 1.0, _ACTOR, EdgeVerb.ASK, "3", 1.0, "lazy GET ok 1 1"),
        EdgeOperation(0, at + WAKE_S / 2, _ACTOR, EdgeVerb.EDGE, "1", 1.0, ALL),
    ]
