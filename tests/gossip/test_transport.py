"""Real sockets on loopback: what the transport promises, and five nodes that find each other, speak and lose one."""

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import ByteStream, TaskStatus

from hawker.clock import SystemClock
from hawker.errors import CannotStart, Unavailable
from hawker.gossip.contract import Fate, NodeMeta
from hawker.gossip.keyring import GossipKeyring, new_keyring
from hawker.gossip.node import GossipNode
from hawker.gossip.transport import SocketTransport, is_literal, joined, split
from hawker.ids import NodeId
from tests.gossip.memory_cluster import RecordingListener, complete, fate
from tests.gossip.single_core import node
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
CLOCK = SystemClock()
_PATIENCE_S = 150.0


class Place:
    def __init__(self, bind: str = "127.0.0.1:0") -> None:
        self.transport = SocketTransport(bind, CLOCK)
        self.datagrams: list[tuple[str, bytes]] = []

    async def serve(self, *, task_status: TaskStatus[None]) -> None:
        await self.transport.serve(
            lambda source, datagram: self.datagrams.append((source, datagram)), self.echo, task_status=task_status
        )

    async def echo(self, stream: ByteStream) -> None:
        async with stream:
            async for data in stream:
                await stream.send(data)


@asynccontextmanager
async def places(*binds: str) -> AsyncIterator[list[Place]]:
    made = [Place(bind) for bind in binds]
    async with anyio.create_task_group() as tasks:
        for place in made:
            await tasks.start(place.serve)
        yield made
        tasks.cancel_scope.cancel()


async def test_one_port_for_datagrams_and_streams() -> None:
    async with places("127.0.0.1:0", "127.0.0.1:0") as (one, other):
        one.transport.send(other.transport.address, b"hello")
        await eventually(lambda: other.datagrams, _PATIENCE_S)
        assert other.datagrams == [(one.transport.address, b"hello")]
        async with await one.transport.dial(other.transport.address) as stream:
            await stream.send(b"hello")
            assert await stream.receive() == b"hello"


async def test_a_process_without_descriptors_takes_streams_again_once_it_has_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, refusals = asyncio.get_running_loop(), [errno.EMFILE, errno.ENOBUFS]
    accept = loop.sock_accept

    async def scarce(listener: socket.socket) -> tuple[socket.socket, object]:
        if refusals:
            code = refusals.pop()
            raise OSError(code, os.strerror(code))
        return await accept(listener)

    monkeypatch.setattr(loop, "sock_accept", scarce)
    async with places("127.0.0.1:0") as (one,), await one.transport.dial(one.transport.address) as stream:
        await stream.send(b"hello")
        assert await stream.receive() == b"hello"
    assert not refusals


async def test_a_name_is_looked_up_once_and_meanwhile_datagrams_are_lost() -> None:
    async with places("127.0.0.1:0", "127.0.0.1:0") as (one, other):
        _, port = split(other.transport.address)

        def sent() -> object:
            one.transport.send(f"localhost:{port}", b"hello")
            return other.datagrams

        await eventually(sent, _PATIENCE_S)


async def test_six_speaks_with_four_where_the_host_has_both() -> None:
    try:
        async with places("[::]:0", "127.0.0.1:0") as (six, four):
            _, port = split(six.transport.address)
            six.transport.send(four.transport.address, b"from six")
            four.transport.send(f"127.0.0.1:{port}", b"from four")
            await eventually(lambda: six.datagrams and four.datagrams, _PATIENCE_S)
            assert six.datagrams[0][0] == four.transport.address
    except BaseExceptionGroup as group:
        if group.subgroup(CannotStart) is None:
            raise
        pytest.skip("this host has no IPv6")


@pytest.mark.parametrize(
    "address", ["", "nonsense", "127.0.0.1:", "127.0.0.1:99999", "nobody.invalid:1", "127.0.0.1:0"]
)
async def test_where_nobody_can_be_nothing_breaks(address: str) -> None:
    async with places("127.0.0.1:0") as (one,):
        one.transport.send(address, b"x")
        with pytest.raises(Unavailable):
            await one.transport.dial(address)


async def test_a_port_that_is_taken_is_told() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with places("127.0.0.1:0") as (one,), places(one.transport.address):
            pass
    assert caught.group_contains(CannotStart, match="cannot listen")


def test_transport_that_does_not_serve_sends_nothing() -> None:
    SocketTransport("127.0.0.1:0", CLOCK).send("127.0.0.1:9", b"x")


@pytest.mark.parametrize("address", ["10.0.0.1:4281", "[fd00::1]:4281", "node.example:1"])
def test_addresses_come_apart_and_together(address: str) -> None:
    assert joined(*split(address)) == address


@pytest.mark.parametrize("address", ["", ":1", "x", "x:", "x:y", "x:-1", "x:65536", "x:１"])
def test_text_that_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="no HOST:PORT"):
        split(address)


def test_literals() -> None:
    assert is_literal("127.0.0.1") and is_literal("::1") and not is_literal("localhost")


async def test_five_nodes_find_each_other_speak_and_lose_one() -> None:
    ring, ears = new_keyring(CLOCK), [RecordingListener() for _ in range(5)]
    nodes = [_node(number, ring, ear) for number, ear in enumerate(ears)]
    scopes = [anyio.CancelScope() for _ in nodes]

    async def serve(number: int, *, task_status: TaskStatus[None]) -> None:
        with scopes[number]:
            await nodes[number].serve(task_status=task_status)

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            await tasks.start(serve, number)
        for joining in nodes[1:]:
            await joining.join([nodes[0].me.address], timeout_s=_PATIENCE_S)
        await eventually(lambda: all(complete(each, 5) for each in nodes), _PATIENCE_S)

        def heard() -> bool:
            nodes[1].send(node(2), b"short")  # a datagram may be lost, so it is said until it is heard
            return (node(1), b"short") in ears[2].messages

        await eventually(heard, _PATIENCE_S)
        long = b"x" * (2 << 20)
        assert await nodes[3].ask(node(4), long, timeout_s=_PATIENCE_S) == b"00000003 said " + long
        scopes[4].cancel()
        await eventually(lambda: all(fate(each, 4) is Fate.DOWN for each in nodes[:4]), _PATIENCE_S)
        await nodes[3].leave()
        scopes[3].cancel()
        await eventually(lambda: {fate(each, 3) for each in nodes[:3]} <= {Fate.LEFT, Fate.DOWN}, _PATIENCE_S)
        tasks.cancel_scope.cancel()


def _node(number: int, ring: GossipKeyring, ears: RecordingListener) -> GossipNode:
    return GossipNode(
        node=NodeId(f"{number:08x}"),
        cluster="c",
        keyring=ring,
        transport=SocketTransport("127.0.0.1:0", CLOCK),
        advertise=None,
        meta=NodeMeta(region="mad", api="http://127.0.0.1"),
        clock=CLOCK,
        listener=ears.listener(),
    )
