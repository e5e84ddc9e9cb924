"""Nodes on a network in memory, for tests in virtual time: who heard what, and the network between them."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup, TaskStatus

from hawker.gossip.contract import Fate, Listener, Member, NodeMeta, Trouble
from hawker.gossip.keyring import GossipKeyring
from hawker.gossip.memory_network import MemoryNetwork
from hawker.gossip.node import GossipNode
from hawker.ids import NodeId
from hawker.sim.harness.loop import LoopClock, eventually
from tests.gossip.single_core import KEYRING, node


@dataclass(frozen=True, slots=True)
class RecordingListener:
    """What one node's listener heard. `answer` makes answers of requests."""

    members: list[Member] = field(default_factory=list)
    messages: list[tuple[NodeId, bytes]] = field(default_factory=list)
    forgotten: list[tuple[NodeId, int]] = field(default_factory=list)
    keyrings: list[GossipKeyring] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)

    def listener(self) -> Listener:
        return Listener(
            on_member=self.members.append,
            on_message=lambda sender, message: self.messages.append((sender, message)),
            on_request=self._answer,
            on_forget=lambda gone, fence: self.forgotten.append((gone, fence)),
            on_keyring=self.keyrings.append,
            on_trouble=self.troubles.append,
        )

    async def _answer(self, sender: NodeId, message: bytes) -> bytes:
        if message == b"never":
            await anyio.sleep_forever()
        return sender.encode() + b" said " + message


class MemoryCluster:
    def __init__(self, tasks: TaskGroup, clock: LoopClock, network: MemoryNetwork) -> None:
        self.tasks, self.clock, self.network = tasks, clock, network
        self.ears: dict[int, RecordingListener] = {}
        self.scopes: dict[int, anyio.CancelScope] = {}

    async def start(
        self,
        number: int,
        *,
        seeds: Sequence[int] = (),
        address: str | None = None,
        cluster: str = "c",
        keyring: GossipKeyring = KEYRING,
        clock: LoopClock | None = None,
        fences: Mapping[NodeId, int] | None = None,
        epoch: int = 1,
    ) -> GossipNode:
        """Served, and joined where seeds are given."""
        self.ears[number] = ears = RecordingListener()
        made = GossipNode(
            node=node(number),
            cluster=cluster,
            keyring=keyring,
            transport=self.network.transport(address or at(number)),
            advertise=None,
            meta=NodeMeta(region="mad", api=f"http://{number}"),
            clock=clock or self.clock,
            listener=ears.listener(),
            epoch=epoch,
            fences=fences,
        )
        await self.tasks.start(self._serve, number, made)
        if seeds:
            await made.join([at(seed) for seed in seeds])
        return made

    async def _serve(self, number: int, served: GossipNode, *, task_status: TaskStatus[None]) -> None:
        with anyio.CancelScope() as self.scopes[number]:
            await served.serve(task_status=task_status)

    def kill(self, number: int) -> None:
        """At once, without a goodbye."""
        self.scopes[number].cancel()

    async def of(self, count: int) -> list[GossipNode]:
        nodes = [await self.start(1)]
        nodes += [await self.start(number, seeds=[1]) for number in range(2, count + 1)]
        await self.until(lambda: all(complete(each, count) for each in nodes))
        return nodes

    async def until(self, condition: Callable[[], object], timeout_s: float = 120.0) -> None:
        await eventually(self.clock, condition, timeout_s, 0.05)


def at(number: int) -> str:
    return f"10.0.0.{number}:4281"


def complete(by: GossipNode, count: int) -> bool:
    """Whether it knows so many living members, with their meta."""
    return sum(member.fate is Fate.ALIVE and member.meta is not None for member in by.members()) == count


def fate(by: GossipNode, number: int) -> Fate | None:
    member = by.member(node(number))
    return member.fate if member else None


@asynccontextmanager
async def memory_cluster(*, loss: float = 0.0, seed: int = 1) -> AsyncIterator[MemoryCluster]:
    clock = LoopClock(seed)
    network = MemoryNetwork(clock, loss=loss)
    async with anyio.create_task_group() as tasks:
        await tasks.start(network.serve)
        yield MemoryCluster(tasks, clock, network)
        tasks.cancel_scope.cancel()
