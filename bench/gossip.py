"""How soon a dead host is known, who is thought dead wrongly, and what membership costs a node that has nothing to do.

PYTHONPATH=. python bench/gossip.py [--rounds 20] [--hours 5] [--nodes 10]

Detection and false alarms are the protocol's own code in virtual time; the cost is of real sockets and real time.
"""

import argparse
import itertools
import time
from dataclasses import dataclass
from functools import partial

import anyio
import uvloop
from anyio.abc import TaskStatus
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from hawker.clock import SystemClock
from hawker.gossip.contract import Fate, Listener, NodeMeta
from hawker.gossip.failure_detector import Timing
from hawker.gossip.keyring import GossipKeyring, new_keyring
from hawker.gossip.node import GossipNode
from hawker.gossip.transport import SocketTransport
from hawker.ids import NodeId
from tests.gossip.virtual_cluster import VirtualCluster, VirtualNode

PLAIN = replace(Timing(), health_most=0, confirmations=0, suspicion_stretch=1.0)
_IDLE_S = 10.0


@dataclass(frozen=True, slots=True)
class Detected:
    """Seconds after a crash until it was first suspected, first thought down, and known to all."""

    suspected: list[float]
    first: list[float]
    known: list[float]


def detection(count: int, loss: float, rounds: int) -> Detected:
    """As many crashes as asked for, a third of a cluster at most, one after the other; then in another cluster."""
    detected = Detected([], [], [])
    for seed in itertools.count(count):
        drill = VirtualCluster(seed=seed, loss=loss)
        for victim in drill.settled(count)[1 : max(2, count // 3)]:
            if len(detected.known) == rounds:
                return detected
            _crash(drill, victim, detected)
    raise AssertionError


def _crash(drill: VirtualCluster, victim: VirtualNode, detected: Detected) -> None:
    drill.run(drill.random.uniform(3, 5))
    drill.seen.clear()
    began = drill.now
    drill.crash(victim)
    detected.known.append(drill.until(partial(drill.everywhere, victim, Fate.DOWN), 120, 0.02))
    detected.suspected.append(drill.fates(Fate.SUSPECT)[0].at - began)
    detected.first.append(drill.fates(Fate.DOWN)[0].at - began)


def false_downs(count: int, loss: float, hours: float, timing: Timing) -> tuple[int, float, float]:
    """How often a living member was thought down, datagrams a member and second, and microseconds of the processor
    that the core took for that."""
    drill = VirtualCluster(seed=count, loss=loss, timing=timing)
    drill.settled(count)
    seconds = hours * 3600 / count
    began = time.process_time()
    drill.run(seconds)
    took = time.process_time() - began
    return len(drill.fates(Fate.DOWN)), drill.sent / seconds / count, took / seconds / count * 1e6


async def idle_share(count: int) -> float:
    """The share of one processor that each of so many nodes takes, over sockets on loopback, all in this process."""
    clock = SystemClock()
    ring = new_keyring(clock)
    nodes = [_node(number, ring, clock) for number in range(count)]
    async with anyio.create_task_group() as tasks:
        for node in nodes:
            await tasks.start(partial(_serve, node))
        for node in nodes[1:]:
            await node.join([nodes[0].me.address])
        while not all(sum(member.meta is not None for member in node.members()) == count for node in nodes):
            await clock.sleep(0.1)
        await clock.sleep(3)
        began = time.process_time()
        await clock.sleep(_IDLE_S)
        share = (time.process_time() - began) / _IDLE_S / count
        tasks.cancel_scope.cancel()
    return share


async def _serve(node: GossipNode, *, task_status: TaskStatus[None]) -> None:
    await node.serve(task_status=task_status)


def _node(number: int, ring: GossipKeyring, clock: SystemClock) -> GossipNode:
    return GossipNode(
        node=NodeId(f"{number:08x}"),
        cluster="bench",
        keyring=ring,
        transport=SocketTransport("127.0.0.1:0", clock),
        advertise=None,
        meta=NodeMeta(region="mad", api="http://127.0.0.1"),
        clock=clock,
        listener=Listener(),
    )


def _at(values: list[float], share: float) -> str:
    return f"{sorted(values)[min(len(values) - 1, int(len(values) * share))]:.1f}"


def detection_table(rounds: int) -> Table:
    table = Table("members", "loss", "crashes", "suspected p50/p99 s", "first down p50/p99 s", "known to all p50/p99 s")
    for count, loss in ((3, 0.0), (3, 0.05), (10, 0.0), (10, 0.05), (100, 0.0), (100, 0.05)):
        result = detection(count, loss, rounds)
        cells = (f"{_at(each, 0.5)} / {_at(each, 0.99)}" for each in (result.suspected, result.first, result.known))
        table.add_row(str(count), f"{loss:.0%}", str(rounds), *cells)
    return table


def alarm_table(hours: float) -> Table:
    table = Table("members", "loss", "node hours", "protocol", "false downs", "datagrams/s each", "core \u00b5s/s each")
    for count, loss, timing in (
        (100, 0.05, Timing()),
        (100, 0.20, Timing()),
        (100, 0.30, Timing()),
        (100, 0.30, PLAIN),
    ):
        downs, datagrams, cost = false_downs(count, loss, hours, timing)
        name = "without Lifeguard" if timing is PLAIN else "with Lifeguard"
        row = (str(count), f"{loss:.0%}", f"{hours:g}", name, str(downs), f"{datagrams:.1f}", f"{cost:.0f}")
        table.add_row(*row)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20, help="crashes for each line")
    parser.add_argument("--hours", type=float, default=5.0, help="node hours for each line")
    parser.add_argument("--nodes", type=int, default=10, help="nodes over sockets")
    arguments = parser.parse_args()
    console = Console(width=140)
    console.print(detection_table(arguments.rounds))
    console.print(alarm_table(arguments.hours))
    share = anyio.run(idle_share, arguments.nodes, backend_options={"loop_factory": uvloop.new_event_loop})
    console.print(f"{arguments.nodes} nodes over sockets, idle: {share:.2%} of one processor each")


if __name__ == "__main__":
    main()
