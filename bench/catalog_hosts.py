"""Nodes of a cluster for the catalog's benchmark, joined as `hawker.up.fleet` joins them, but without a worker and a
broker: gossip over sockets on loopback, the replica with its file, what reads it. As a program, it is some of the nodes
of a cluster whose others are in the process that started it.
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import ByteStream, TaskStatus

from hawker.catalog.change import Scope
from hawker.catalog.contract import Statement
from hawker.catalog.replica import Replica
from hawker.catalog.storage import SqliteStorage
from hawker.clock import SystemClock
from hawker.errors import Unavailable
from hawker.fleet.gossip_bridge import GossipBridge, Members
from hawker.gossip.contract import Fate, Listener, Member, NodeMeta
from hawker.gossip.keyring import GossipKeyring, new_keyring
from hawker.gossip.node import GossipNode
from hawker.gossip.transport import SocketTransport
from hawker.ids import NodeId
from hawker.place import Place
from hawker.record.node import NodeRecord
from hawker.up.catalog import own_catalog

REGION = "bench"
LINKS = 10
LOOK_S, SETTLE_S = 0.01, 3.0
PATIENCE_S = 120.0


class Tap(SocketTransport):
    """Counts the bytes that it sends. While it is `cut`, nothing goes out or comes in."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:0")
        self.bytes, self.cut = 0, False

    def send(self, address: str, datagram: bytes) -> None:
        if not self.cut:
            self.bytes += len(datagram)
            super().send(address, datagram)

    async def dial(self, address: str) -> ByteStream:
        if self.cut:
            raise Unavailable("cut off")
        return Counted(await super().dial(address), self)

    async def serve(
        self,
        on_datagram: Callable[[str, bytes], None],
        on_stream: Callable[[ByteStream], Awaitable[None]],
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        def heard(source: str, datagram: bytes) -> None:
            if not self.cut:
                on_datagram(source, datagram)

        async def met(stream: ByteStream) -> None:
            if self.cut:
                await stream.aclose()
            else:
                await on_stream(Counted(stream, self))

        await super().serve(heard, met, task_status=task_status)


class Counted(ByteStream):
    def __init__(self, stream: ByteStream, tap: Tap) -> None:
        self._stream, self._tap = stream, tap

    async def send(self, item: bytes) -> None:
        self._tap.bytes += len(item)
        await self._stream.send(item)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._stream.receive(max_bytes)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return self._stream.extra_attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """`suspected` are the nodes that this one ever thought to be in trouble."""

    id: NodeId
    gossip: GossipNode
    replica: Replica[SqliteStorage]
    tap: Tap
    suspected: list[NodeId]


@asynccontextmanager
async def host(number: int, folder: Path, ring: GossipKeyring, seeds: Sequence[str]) -> AsyncIterator[Host]:
    """Begins with the file that is there, if there is one."""
    clock, me, tap = SystemClock(), node_id(number), Tap()
    place, meeting = place_of(number, folder), GossipBridge[SqliteStorage]()
    storage = await to_thread.run_sync(SqliteStorage, place.catalog, me, clock)
    kept = own_catalog(storage, NodeRecord(id=me, region=REGION, created_at=clock.now()), place, clock, meeting)
    members = Members(lambda: gossip, kept.told, clock, lambda some: None)
    suspected: list[NodeId] = []

    def heard(member: Member) -> None:
        if member.fate in (Fate.SUSPECT, Fate.DOWN):
            suspected.append(member.node)
        members.heard(member)

    gossip = GossipNode(
        node=me,
        cluster="bench",
        keyring=ring,
        transport=tap,
        advertise=None,
        meta=NodeMeta(region=REGION, api="http://127.0.0.1", catalog=kept.schema),
        clock=clock,
        listener=Listener(
            on_member=heard,
            on_message=meeting.on_message,
            on_request=meeting.on_request,
            on_forget=meeting.on_forget,
        ),
        fences=kept.fences,
    )
    meeting.gossip = gossip
    assert meeting.replica is not None
    async with anyio.create_task_group() as tasks:
        await tasks.start(gossip.serve)
        async with kept.running():
            tasks.start_soon(members.serve)
            if seeds:
                await gossip.join(seeds)
            yield Host(id=me, gossip=gossip, replica=meeting.replica, tap=tap, suspected=suspected)
        tasks.cancel_scope.cancel()


def node_id(number: int) -> NodeId:
    return NodeId(f"{number:08x}")


def place_of(number: int, folder: Path) -> Place:
    place = Place(folder / node_id(number))
    place.make()
    return place


@asynccontextmanager
async def some(
    numbers: range, folder: Path, ring: GossipKeyring, seeds: Sequence[str] = ()
) -> AsyncIterator[list[Host]]:
    """Each joins by those before it, `LINKS` of them."""
    hosts: list[Host] = []
    async with AsyncExitStack() as stack:
        for number in numbers:
            before = [*seeds, *(each.gossip.me.address for each in hosts)][-LINKS:]
            hosts.append(await stack.enter_async_context(host(number, folder, ring, before)))
        yield hosts


@asynccontextmanager
async def fleet(count: int, folder: Path, ring: GossipKeyring | None = None) -> AsyncIterator[list[Host]]:
    """So many hosts that all know each other, and are done with telling each other so."""
    async with some(range(count), folder, ring or new_keyring(SystemClock())) as hosts:
        await met(hosts, count)
        await anyio.sleep(SETTLE_S)
        yield hosts


async def met(hosts: Sequence[Host], count: int) -> None:
    """Until each knows all, and may write."""
    for each in hosts:
        engine = each.replica.engine
        await until(lambda: engine.peers == count - 1 and engine.settled)  # noqa: B023


async def until(true: Callable[[], bool]) -> None:
    clock = SystemClock()
    with anyio.fail_after(PATIENCE_S):
        while not true():
            await clock.sleep(LOOK_S)


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """How far the owner of a stream is."""

    owner: NodeId
    scope: Scope
    epoch: int
    applied: int


def heads(hosts: Sequence[Host]) -> list[Head]:
    """Of all that they wrote."""
    at = [(each.id, scope, each.replica.engine.position(scope, each.id)) for each in hosts for scope in Scope]
    return [Head(owner=owner, scope=scope, epoch=head.epoch, applied=head.applied) for owner, scope, head in at]


async def complete(hosts: Sequence[Host], wanted: Sequence[Head] = ()) -> None:
    """Until each has that, or all that any of them wrote."""
    for head in wanted or heads(hosts):
        for there in hosts:
            await until(partial(_has, there, head))


def _has(there: Host, head: Head) -> bool:
    position = there.replica.engine.position(head.scope, head.owner)
    return (position.epoch, position.applied) >= (head.epoch, head.applied)


async def counted(there: Host) -> object:
    return (await there.replica.query(Statement(query="SELECT count(*) FROM machines"))).rows[0][0]


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """What a process of neighbours is told: which nodes it is, of how many."""

    first: int
    count: int
    of: int
    folder: str
    ring: GossipKeyring
    seeds: tuple[str, ...]


async def neighbours(begin: Begin) -> None:
    """Says when all nodes have met; then, of each line of heads, when these nodes have them, and how many rows the one
    with the fewest has. Ends with its input."""
    numbers = range(begin.first, begin.first + begin.count)
    async with some(numbers, Path(begin.folder), begin.ring, begin.seeds) as hosts:
        await met(hosts, begin.of)
        _answer("met")
        while line := await to_thread.run_sync(sys.stdin.buffer.readline, abandon_on_cancel=True):
            await complete(hosts, msgspec.json.decode(line, type=list[Head]))
            _answer(str(min([await counted(each) for each in hosts], key=str)))


def _answer(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    anyio.run(
        neighbours,
        msgspec.json.decode(sys.stdin.buffer.readline(), type=Begin),
        backend_options={"use_uvloop": True},
    )
