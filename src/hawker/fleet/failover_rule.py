"""Whether a spare is to be started. Pure: what is seen of the region in, a verdict out.

At most one side of a partition has most of the nodes, and on one side the spare with the least id goes first; so of all
spares of a machine one is started for each loss of its host, whatever the network does.
"""

from collections.abc import Mapping, Sequence
from enum import Enum

from hawker.ids import AppName, MachineId, NodeId
from hawker.value_object import ValueObject

ALIVE, DOWN = "alive", "down"
WITNESSES = 1
"""Other nodes that must have found the host down by themselves."""


class Watched(ValueObject, frozen=True, kw_only=True):
    """A machine that has spares, as its owner last published it. `seen` (Unix seconds) tells one loss from the next:
    the owner changes it whenever the machine changes."""

    id: MachineId
    app: AppName
    owner: NodeId
    runs: bool
    seen: float


class Spare(ValueObject, frozen=True, kw_only=True):
    id: MachineId
    owner: NodeId


class Takeover(ValueObject, frozen=True, kw_only=True):
    """That a spare was started for a machine, as it was `seen`."""

    machine: MachineId
    spare: MachineId
    seen: float


class FailoverVerdict(Enum):
    """`MINORITY`: this side of the network may not decide. `WITNESS`: it may once enough others say the same.
    `AFTER`: another spare goes first. `AWAY`: the host is there, and only its daemon is not."""

    WATCH = "watch"
    DONE = "done"
    MINORITY = "minority"
    WITNESS = "witness"
    AFTER = "after"
    AWAY = "away"
    START = "start"


def judge(
    spare: Spare,
    watched: Watched,
    fates: Mapping[NodeId, str],
    spares: Sequence[Spare],
    takeovers: Sequence[Takeover],
    witnesses: int,
    *,
    away: bool = False,
) -> FailoverVerdict:
    """`fates` are those of the region's nodes, this one and the lost ones included; `spares` all of the machine's;
    `witnesses` how many other nodes have said that the owner is down; `away` says that its host is up."""
    if not watched.runs or fates.get(watched.owner) != DOWN:
        return FailoverVerdict.WATCH
    if any(each.machine == watched.id and each.seen >= watched.seen for each in takeovers):
        return FailoverVerdict.DONE
    if 2 * sum(fate == ALIVE for fate in fates.values()) <= len(fates):
        return FailoverVerdict.MINORITY
    if any(each.id < spare.id and fates.get(each.owner, DOWN) != DOWN for each in spares):
        return FailoverVerdict.AFTER
    if away:
        return FailoverVerdict.AWAY
    return FailoverVerdict.START if witnesses >= WITNESSES else FailoverVerdict.WITNESS
