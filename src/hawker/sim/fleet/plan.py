"""A run of a fleet as a list of operations of clients, operators and faults, drawn from a seed beforehand."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec.structs import replace

from hawker.clock import ManualClock
from hawker.node import Capacity
from hawker.sim.harness.plan import NATURE, Chance, RunOperation, RunPlan, numbered

CLIENTS = ("ann", "bob", "cat")
BUYER, DOUBTER, OPERATOR = "dan", "eve", "ops"
"""Who orders several machines at once, and volumes; whose order is lost sight of; who cordons and forgets nodes."""
WATCHED, APART = "watched", "apart"
"""Words of blows that find whom they hit when they come: the host of a machine that has spares; two spares' hosts."""

BROKERS = 20
"""So many nodes of a light fleet have a broker: the first ones."""


class FleetVerb(StrEnum):
    ORDER = "order"
    AGAIN = "again"
    SPARE = "spare"
    STOP = "stop"
    START = "start"
    DESTROY = "destroy"
    COUNT = "order several"
    VOLUME = "volume"

    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    FORGET = "forget"

    KILL = "kill"
    POWER = "power cut"
    UPGRADE = "upgrade"
    KILL_AT_CALL = "kill at a call"
    LATE = "late orders"
    CUT = "cut"
    ONE_WAY = "cut one way"
    LOSS = "loss"
    SLOW = "slow"
    CLOCK = "clock"


CALLS = frozenset(
    {
        FleetVerb.ORDER,
        FleetVerb.AGAIN,
        FleetVerb.SPARE,
        FleetVerb.STOP,
        FleetVerb.START,
        FleetVerb.DESTROY,
        FleetVerb.COUNT,
        FleetVerb.VOLUME,
    }
)


class FleetOperation(RunOperation[FleetVerb], frozen=True):
    """A call of a client or an operator, or a fault. `label` names an order; `nodes` are numbers of nodes: the brokers
    that a client tries in that order, or whom a fault hits. A fault lasts for `for_s` seconds."""

    nodes: tuple[int, ...] = ()
    for_s: float = 0.0


class FleetPlan(RunPlan[FleetOperation], frozen=True, kw_only=True):
    """`room` is what each node has to sell. A `light` fleet's nodes have the fake of the worker."""

    nodes: int
    regions: int
    room: Capacity
    clients: tuple[str, ...] = CLIENTS
    light: bool = False

    def within(self, nodes: int) -> "FleetPlan":
        """The plan among the first so many nodes: what was to hit another one hits one of these."""
        if nodes >= self.nodes:
            return self
        operations = tuple(replace(operation, nodes=_folded(operation.nodes, nodes)) for operation in self.operations)
        return replace(self, nodes=nodes, regions=1, operations=operations)


def _folded(numbers: tuple[int, ...], nodes: int) -> tuple[int, ...]:
    """Each once, in their order."""
    return tuple(dict.fromkeys(number % nodes for number in numbers))


MINUTES = 1.0
_SIZES: Mapping[int, float] = {3: 6, 4: 3, 5: 3, 7: 1, 10: 0.4, 20: 0.05}
_MEMORY_MIB = (512, 1024, 1024, 2048)
_CALLS: Mapping[FleetVerb, float] = {
    FleetVerb.ORDER: 6,
    FleetVerb.AGAIN: 3,
    FleetVerb.SPARE: 1.5,
    FleetVerb.STOP: 1,
    FleetVerb.START: 1,
    FleetVerb.DESTROY: 4,
}
_BLOWS: Mapping[FleetVerb, float] = {
    FleetVerb.KILL: 3,
    FleetVerb.POWER: 3,
    FleetVerb.UPGRADE: 1,
    FleetVerb.KILL_AT_CALL: 3,
    FleetVerb.LATE: 3,
    FleetVerb.CUT: 3,
    FleetVerb.ONE_WAY: 2,
    FleetVerb.LOSS: 3,
    FleetVerb.SLOW: 2,
    FleetVerb.CLOCK: 1.5,
}
_PURCHASES: Mapping[FleetVerb, float] = {FleetVerb.COUNT: 3, FleetVerb.VOLUME: 1.5, FleetVerb.DESTROY: 1}
_OPERATIONS: Mapping[FleetVerb, float] = {
    FleetVerb.CORDON: 3,
    FleetVerb.UNCORDON: 4,
    FleetVerb.DRAIN: 1,
    FleetVerb.FORGET: 2,
}
_BUYERS, _OPERATORS, _DOUBTERS = 1_000_000_007, 2_000_000_011, 3_000_000_019
_DOUBT_S = 20.0
_TOO_MANY = 30
_HEAVY = frozenset({FleetVerb.SPARE})
_NODES_A_CLIENT = 25
_FEW, _APART = 20, 12
_PAUSES_S = (0.02, 0.1, 0.5, 1.0, 2.0, 6.0)
_BREAKS_S = (0.2, 1.0, 3.0, 6.0, 12.0)


def draw(seed: int, minutes: float = MINUTES, nodes: int | None = None, *, light: bool = False) -> FleetPlan:
    """The larger a `light` fleet, the more clients it has."""
    chance = Chance(ManualClock(seed=seed))
    size = chance.weighed(_SIZES)
    size = size if nodes is None else nodes
    regions = chance.one_of((1, 1, 1, 2)) if size > 4 and not light else 1
    clients = (
        (*CLIENTS, *(f"c{number}" for number in range(len(CLIENTS), size // _NODES_A_CLIENT))) if light else CLIENTS
    )
    end = minutes * 60
    weights = {verb: weight for verb, weight in _BLOWS.items() if chance.happens(0.7)} or dict(_BLOWS)
    scene = _scene(chance, size) if chance.happens(0.6) and not light else []
    calls = {verb: weight for verb, weight in _CALLS.items() if not light or verb not in _HEAVY}
    doors = min(size, BROKERS) if light else size
    operations = [
        *scene,
        *(each for client in clients for each in _calls(chance, client, calls, end, doors, bool(scene))),
    ]
    operations += _blows(chance, weights, end, size)
    operations += _doubts(Chance(ManualClock(seed=seed + _DOUBTERS)), end, doors)
    operations += _bought(Chance(ManualClock(seed=seed + _BUYERS)), end, doors, light=light)
    operations += _operated(Chance(ManualClock(seed=seed + _OPERATORS)), end, size) if not light else []
    room = Capacity(cpus=16, memory_mib=chance.one_of(_MEMORY_MIB), disk_mib=100_000)
    return FleetPlan(seed, numbered(operations), nodes=size, regions=regions, room=room, clients=clients, light=light)


def _scene(chance: Chance, size: int) -> list[FleetOperation]:
    """A machine with two spares, whose host is lost, while the network may part the spares."""
    brokers = tuple(chance.between(0, size - 1) for _ in range(4))
    ann = CLIENTS[0]
    operations = [
        FleetOperation(0, 0.1, ann, FleetVerb.ORDER, f"{ann}-1", nodes=brokers, word="key", amount=256),
        FleetOperation(0, 0.5, ann, FleetVerb.SPARE, f"{ann}-2", nodes=brokers, word=f"{ann}-1", amount=256),
        FleetOperation(0, 1.0, ann, FleetVerb.SPARE, f"{ann}-3", nodes=brokers[::-1], word=f"{ann}-1", amount=256),
        FleetOperation(
            0, 6.0, NATURE, chance.one_of((FleetVerb.POWER, FleetVerb.KILL)), word=WATCHED, amount=1.0, for_s=50.0
        ),
    ]
    if chance.happens(0.6):
        operations.append(
            FleetOperation(0, chance.one_of((5.9, 7.0, 15.0)), NATURE, FleetVerb.CUT, word=APART, for_s=45.0)
        )
    return operations


def _calls(
    chance: Chance, client: str, calls: Mapping[FleetVerb, float], end: float, size: int, begun: bool
) -> list[FleetOperation]:
    """`begun`: the first client has made three orders already."""
    operations: list[FleetOperation] = []
    made = 3 if begun and client == CLIENTS[0] else 0
    at = 2.0 if made else chance.one_of(_PAUSES_S)
    while at < end:
        verb = FleetVerb.ORDER if not made else chance.weighed(calls)
        made += verb in (FleetVerb.ORDER, FleetVerb.SPARE)
        brokers = tuple(chance.between(0, size - 1) for _ in range(4))
        operation = FleetOperation(0, round(at, 3), client, verb, f"{client}-{made}", nodes=brokers)
        operations.append(_call(chance, operation, made))
        at += chance.one_of(_PAUSES_S)
    return operations


def _call(chance: Chance, operation: FleetOperation, made: int) -> FleetOperation:
    """A spare's `word` is the label of what it stands by for; an order's says whether it has a key."""
    match operation.verb:
        case FleetVerb.ORDER:
            keyed = "key" if chance.happens(0.6) else ""
            return replace(operation, word=keyed, amount=chance.one_of((256, 256, 256, 512)))
        case FleetVerb.SPARE:
            return replace(
                operation, word=f"{operation.actor}-{chance.between(max(1, made - 3), made - 1)}", amount=256
            )
        case _:
            return replace(operation, label=f"{operation.actor}-{chance.between(max(1, made - 5), made)}")


def _bought(chance: Chance, end: float, size: int, *, light: bool) -> list[FleetOperation]:
    """Orders of several machines, and volumes with a machine on them. In three of four seeds."""
    operations: list[FleetOperation] = []
    purchases = {verb: weight for verb, weight in _PURCHASES.items() if not light or verb is FleetVerb.COUNT}
    at = chance.one_of(_BREAKS_S) if chance.happens(0.75) else end
    if at < end and chance.happens(0.5):  # before anything goes wrong, and hardly to be had
        gate = (chance.between(0, size - 1),)
        operations.append(
            FleetOperation(
                0, 0.05, BUYER, FleetVerb.COUNT, f"{BUYER}-1", nodes=gate, word="key whole", amount=_TOO_MANY
            )
        )
    while at < end:
        brokers = tuple(chance.between(0, size - 1) for _ in range(4))
        operation = FleetOperation(
            0, round(at, 3), BUYER, chance.weighed(purchases), f"{BUYER}-{len(operations) + 1}", nodes=brokers
        )
        match operation.verb:
            case FleetVerb.COUNT:
                word = chance.one_of(("", "key", "whole", "key whole", "key whole"))
                operation = replace(operation, word=word, amount=chance.between(2, 9 if "whole" in word else 4))
            case FleetVerb.DESTROY:
                operation = replace(operation, label=f"{BUYER}-{chance.between(1, len(operations) + 1)}")
            case _:
                operation = replace(operation, amount=256)
        operations.append(operation)
        at += 2 * chance.one_of(_BREAKS_S)
    return operations


def _doubts(chance: Chance, end: float, size: int) -> list[FleetOperation]:
    """An order without a key whose node dies with it, so that nobody knows; it is asked for again by the name that the
    broker gave it, while the node is away and once it is back. In half of the seeds."""
    if end < _DOUBT_S or chance.happens(0.5):
        return []
    at, label = chance.between(8, int(end) - 10), f"{DOUBTER}-1"
    brokers = [tuple(chance.between(0, size - 1) for _ in range(4)) for _ in range(4)]
    when, away_s = chance.one_of(("before", "after", "after")), chance.one_of((3.0, 12.0, 30.0))
    return [
        FleetOperation(0, at, NATURE, FleetVerb.KILL_AT_CALL, word=f"receiver {when}", amount=1, for_s=away_s),
        FleetOperation(0, at + 0.01, DOUBTER, FleetVerb.ORDER, label, nodes=brokers[0], amount=256),
        *(
            FleetOperation(0, at + wait_s, DOUBTER, FleetVerb.AGAIN, label, nodes=nodes)
            for wait_s, nodes in zip((2, 5, 9), brokers[1:], strict=True)
        ),
    ]


def _operated(chance: Chance, end: float, size: int) -> list[FleetOperation]:
    """The first of `nodes` is asked, the last one meant. In half of the seeds."""
    operations: list[FleetOperation] = []
    at, last = chance.one_of(_BREAKS_S) if chance.happens(0.5) else end, 0
    while at < end:
        verb = chance.weighed(_OPERATIONS)
        last = last if verb is FleetVerb.UNCORDON else chance.between(0, size - 1)
        operations.append(FleetOperation(0, round(at, 3), OPERATOR, verb, nodes=(chance.between(0, size - 1), last)))
        at += chance.one_of(_BREAKS_S)
    return operations


def _blows(chance: Chance, weights: Mapping[FleetVerb, float], end: float, size: int) -> list[FleetOperation]:
    operations: list[FleetOperation] = []
    at = 1.0
    while at < end:
        operations.append(_blow(chance, FleetOperation(0, round(at, 3), NATURE, chance.weighed(weights)), size))
        at += chance.one_of(_BREAKS_S) * (3 / max(3, size)) ** 0.5
    return operations


def _blow(chance: Chance, operation: FleetOperation, size: int) -> FleetOperation:
    one = (chance.between(0, size - 1),)
    match operation.verb:
        case FleetVerb.KILL | FleetVerb.UPGRADE:
            return replace(operation, nodes=one, for_s=chance.one_of((0.0, 0.5, 3.0, 30.0)))
        case FleetVerb.POWER:
            return replace(
                operation, nodes=one, amount=chance.one_of((0.0, 0.5, 1.0)), for_s=chance.one_of((3.0, 20.0, 45.0))
            )
        case FleetVerb.KILL_AT_CALL:
            whom = chance.one_of(("sender", "sender", "receiver"))
            when = chance.one_of(("before", "after"))
            return replace(
                operation, word=f"{whom} {when}", amount=chance.between(1, 3), for_s=chance.one_of((0.5, 5.0, 30.0))
            )
        case FleetVerb.LATE:
            return replace(operation, amount=chance.between(1, 4))
        case FleetVerb.CUT:
            share = 0.4 if size <= _FEW else _APART / size
            apart = tuple(n for n in range(size) if chance.happens(share)) or one
            return replace(operation, nodes=apart, for_s=chance.one_of((0.5, 3.0, 10.0, 40.0)))
        case FleetVerb.ONE_WAY:
            two = (*one, chance.between(0, size - 1))
            return replace(operation, nodes=two, for_s=chance.one_of((0.5, 3.0, 10.0, 40.0)))
        case FleetVerb.LOSS:
            word = chance.one_of(("requests", "answers", "answers", "all"))
            return replace(
                operation, word=word, amount=chance.one_of((0.1, 0.3, 0.6)), for_s=chance.one_of((1.0, 5.0, 15.0))
            )
        case FleetVerb.SLOW:
            return replace(
                operation, nodes=one, amount=chance.one_of((0.05, 0.5, 2.0)), for_s=chance.one_of((2.0, 10.0))
            )
        case _:
            return replace(operation, nodes=one, amount=chance.one_of((-3600.0, -60.0, -1.0, 1.0, 60.0, 3600.0)))
