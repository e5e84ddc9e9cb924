"""What may happen to a cluster, and what must not come of it. Each scene returns complaints: none, if all is well.

The same scenes judge the real protocol and those with a bug planted in them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from hawker.gossip.contract import Fate
from hawker.gossip.effects import Forgot, MemberChanged, Rejected
from hawker.gossip.failure_detector import Timing
from hawker.gossip.membership import Membership
from tests.gossip.virtual_cluster import VirtualCluster, VirtualNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Which protocol is played."""

    timing: Timing = field(default_factory=Timing)
    membership: type[Membership] = Membership

    def drill(self, seed: int, loss: float = 0.0) -> VirtualCluster:
        return VirtualCluster(seed=seed, loss=loss, timing=self.timing, membership=self.membership)


Scene: TypeAlias = Callable[[Kind, int], list[str]]


def heavy_loss(kind: Kind, seed: int) -> list[str]:
    """A third of all datagrams vanishes; nobody dies of it."""
    drill = kind.drill(seed, loss=0.3)
    drill.settled(16)
    drill.run(120)
    return [f"{down.by} says that {_of(down.event)} is down" for down in drill.fates(Fate.DOWN)]


def some_loss(kind: Kind, seed: int) -> list[str]:
    drill = kind.drill(seed, loss=0.05)
    drill.settled(30)
    drill.run(60)
    return [f"{down.by} says that {_of(down.event)} is down" for down in drill.fates(Fate.DOWN)]


def slow_node(kind: Kind, seed: int) -> list[str]:
    """One stands still for 5 s every few seconds. It may be thought down; it must not drag others with it."""
    drill = kind.drill(seed, loss=0.02)
    nodes = drill.settled(10)
    for _ in range(10):
        drill.pause(nodes[0], 5.0)
        drill.run(5.0 + drill.random.uniform(3, 8))
    downs = [down for down in drill.fates(Fate.DOWN) if _of(down.event) != nodes[0].name]
    return [f"{down.by} says that {_of(down.event)} is down" for down in downs]


def crash(kind: Kind, seed: int) -> list[str]:
    """One dies: soon all know, and of nobody else is it said."""
    drill = kind.drill(seed, loss=0.05)
    nodes = drill.settled(12)
    drill.run(3)
    began = drill.now
    drill.crash(nodes[5])
    drill.run(20)
    complaints = [] if drill.everywhere(nodes[5], Fate.DOWN) else ["not all know that one died"]
    complaints += [
        f"down after {down.at - began:.1f} s only" for down in drill.fates(Fate.DOWN) if down.at > began + 15
    ]
    return complaints + [
        f"{_of(down.event)} is well" for down in drill.fates(Fate.DOWN) if _of(down.event) != nodes[5].name
    ]


def one_way(kind: Kind, seed: int) -> list[str]:
    """Some ways work in one direction only; others vouch for whoever is there."""
    drill = kind.drill(seed)
    nodes = drill.settled(10)
    drill.part(nodes[:1], nodes[1:4], both=False)
    drill.part(nodes[7:8], nodes[8:10], both=False)
    drill.run(60)
    return [f"{seen.by} suspects {_of(seen.event)}" for seen in drill.fates(Fate.SUSPECT)]


def parted(kind: Kind, seed: int) -> list[str]:
    """Two halves do not see each other for a minute; afterwards they are one again."""
    drill = kind.drill(seed, loss=0.02)
    nodes = drill.settled(10)
    drill.part(nodes[:4], nodes[4:])
    drill.run(60)
    complaints = [] if drill.fate(nodes[0], nodes[9]) is Fate.DOWN else ["the other half is not thought down"]
    drill.cut.clear()
    drill.run(40)
    return complaints if drill.agreed(nodes) else [*complaints, "the halves do not come together again"]


def lost_news(kind: Kind, seed: int) -> list[str]:
    """One heard nothing for a while in which another changed its meta and one was forgotten; then it catches up."""
    drill = kind.drill(seed)
    nodes = drill.settled(6)
    drill.part(nodes[:1], nodes[1:])
    drill.run(2)
    drill.act(nodes[1], nodes[1].swim.declare(drill.now, epoch=7))
    drill.act(nodes[2], nodes[2].swim.forget(nodes[5].name, 1, drill.now))
    drill.crash(nodes[5])
    drill.run(2)
    drill.cut.clear()
    drill.run(30)
    return _unlike(drill, nodes[:5])


def frozen(kind: Kind, seed: int) -> list[str]:
    """One hears of a suspect and then stands still for half a minute, in which the suspect refutes."""
    drill = kind.drill(seed)
    nodes = drill.settled(8)
    suspect, sleeper = nodes[3], nodes[6]
    drill.part([suspect], [node for node in nodes if node is not suspect])
    drill.until(lambda: drill.fate(sleeper, suspect) is Fate.SUSPECT, 10)
    drill.cut.clear()
    drill.pause(sleeper, 30)
    drill.run(40)
    downs = [down for down in drill.fates(Fate.DOWN) if down.by == sleeper.name]
    return [f"the sleeper says that {_of(down.event)} is down" for down in downs]


def restart(kind: Kind, seed: int) -> list[str]:
    """One comes back at once, at its address: another process that knows nothing of what the former one said."""
    drill = kind.drill(seed)
    nodes = drill.settled(6)
    for _ in range(3):
        drill.act(nodes[2], nodes[2].swim.declare(drill.now, epoch=2))
        drill.run(0.5)
    drill.crash(nodes[2])
    drill.run(0.2)
    fresh = drill.start(2, seeds=[nodes[0].address], epoch=3)
    drill.run(20)
    peers = [node.swim.membership.members.get(fresh.name) for node in nodes if node.name != fresh.name]
    known = [peer for peer in peers if peer and peer.boot == fresh.swim.me.boot and peer.epoch == 3]
    complaints = [] if len(known) == 5 else ["not all know the new process"]
    return [*complaints, *(f"{_of(down.event)} is well" for down in drill.fates(Fate.DOWN))]


def twins(kind: Kind, seed: int) -> list[str]:
    """A second node with the id of another joins where that one is thought down; then the two parts meet."""
    drill = kind.drill(seed)
    nodes = drill.settled(8)
    drill.part(nodes[:3], nodes[3:])
    drill.until(lambda: drill.fate(nodes[7], nodes[0]) is Fate.DOWN, 60)
    twin = drill.start(0, seeds=[nodes[7].address], address="twin:1", epoch=2)
    drill.part(nodes[:3], [twin])
    drill.run(5)
    if drill.fate(nodes[7], twin) is not Fate.ALIVE:
        return ["it was not let in where the first was down"]
    drill.cut.clear()
    drill.run(30)
    stepped_down = {seen.at for seen in drill.events(Rejected) if seen.by == twin.name}
    first_stays = not nodes[0].dead and nodes[0].swim.me.fate is Fate.ALIVE
    return [] if stepped_down and first_stays else ["the newer one did not step down"]


def forgotten(kind: Kind, seed: int) -> list[str]:
    """One that is forgotten is gone for all, also when it speaks; with a newer epoch it is back."""
    drill = kind.drill(seed)
    nodes = drill.settled(8)
    gone, rest = nodes[4], [*nodes[:4], *nodes[5:]]
    drill.act(nodes[0], nodes[0].swim.forget(gone.name, 1, drill.now))
    drill.run(10)
    complaints = [] if all(drill.fate(node, gone) is None for node in rest) else ["some know it still"]
    if not [seen for seen in drill.events(Forgot) if seen.by == gone.name]:
        complaints.append("it does not know that it was forgotten")
    drill.act(gone, gone.swim.declare(drill.now, epoch=2))
    drill.run(15)
    return complaints if drill.agreed(nodes) else [*complaints, "it did not come back"]


def goodbye(kind: Kind, seed: int) -> list[str]:
    """One that says goodbye has left, and was never suspected."""
    drill = kind.drill(seed, loss=0.05)
    nodes = drill.settled(12)
    drill.act(nodes[3], nodes[3].swim.leave(drill.now))
    drill.run(1)
    drill.crash(nodes[3])
    drill.run(20)
    complaints = [] if drill.everywhere(nodes[3], Fate.LEFT) else ["not all know that it left"]
    return complaints + [f"{down.by} thinks it down" for down in drill.fates(Fate.DOWN)]


def _unlike(drill: VirtualCluster, nodes: list[VirtualNode]) -> list[str]:
    digests = {node.swim.membership.members.digest for node in nodes}
    return [] if len(digests) == 1 else [f"{len(digests)} different beliefs"]


def _of(event: object) -> str:
    return event.member.node if isinstance(event, MemberChanged) else ""


SCENES: tuple[Scene, ...] = (
    heavy_loss,
    some_loss,
    slow_node,
    crash,
    one_way,
    parted,
    lost_news,
    frozen,
    restart,
    twins,
    forgotten,
    goodbye,
)
