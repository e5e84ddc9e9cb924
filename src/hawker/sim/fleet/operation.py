"""What is done in a simulated fleet: a client's call or nature's blow, with its moment."""

from dataclasses import dataclass, replace
from enum import StrEnum

from hawker.node import Capacity

NATURE = "nature"
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


@dataclass(frozen=True, slots=True)
class FleetOperation:
    """`at` is in seconds, `label` names an order, `nodes` are numbers of nodes: the brokers that a client tries in that
    order, or whom a blow hits. `word`, `amount` and `for_s` are as the verb takes them."""

    number: int
    at: float
    actor: str
    verb: FleetVerb
    label: str = ""
    nodes: tuple[int, ...] = ()
    word: str = ""
    amount: float = 0.0
    for_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What a seed stands for. A `light` fleet's nodes have the fake of the worker."""

    seed: int
    nodes: int
    regions: int
    room: Capacity
    deeds: tuple[FleetOperation, ...]
    clients: tuple[str, ...] = CLIENTS
    light: bool = False

    def of(self, actor: str) -> tuple[FleetOperation, ...]:
        return tuple(deed for deed in self.deeds if deed.actor == actor)

    def only(self, numbers: frozenset[int]) -> "FleetPlan":
        return replace(self, deeds=tuple(deed for deed in self.deeds if deed.number in numbers))

    def within(self, nodes: int) -> "FleetPlan":
        """The same deeds among the first so many nodes: what was to hit another one hits one of these."""
        if nodes >= self.nodes:
            return self
        deeds = tuple(replace(deed, nodes=_folded(deed.nodes, nodes)) for deed in self.deeds)
        return replace(self, nodes=nodes, regions=1, deeds=deeds)


def _folded(numbers: tuple[int, ...], nodes: int) -> tuple[int, ...]:
    """Each once, in their order."""
    return tuple(dict.fromkeys(number % nodes for number in numbers))
