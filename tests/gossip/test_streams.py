"""Conversations over streams, with callers that do everything wrong."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import ByteStream

from hawker.clock import ManualClock
from hawker.errors import DeadlineExceeded, NotFound, Unavailable
from hawker.gossip.keyring import GossipKeyring, new_keyring
from hawker.gossip.listener import Listener
from hawker.gossip.memory_network import MemoryNetwork
from hawker.gossip.secure_stream import MessageKind, SecureStream, StreamHello, hello_of, records_of
from hawker.gossip.streams import CALLERS, Streams
from hawker.ids import NodeId
from hawker.sim.harness.loop import LoopClock, eventually
from tests.gossip.single_core import KEYRING, node
from tests.worker.hourglass import in_virtual_time

pytestmark = pytest.mark.anyio
anyio_backend = in_virtual_time


class Pair:
    """Node 1 calls from `a:1`, node 2 answers at `b:1`."""

    def __init__(self, network: MemoryNetwork, clock: LoopClock) -> None:
        self.network, self.clock = network, clock
        self.heard: list[tuple[NodeId, bytes]] = []
        self.cancelled = False
        self.listener = Listener(on_message=lambda *heard: self.heard.append(heard), on_request=self.answer)
        self.there = network.transport("b:1")
        self.here = network.transport("a:1")
        self.answerer = self.streams(2, listener=self.listener)
        self.caller = self.streams(1)

    def streams(
        self, number: int, *, keyring: GossipKeyring = KEYRING, cluster: str = "c", listener: Listener | None = None
    ) -> Streams:
        return Streams(node(number), number, cluster, keyring, self.here, listener or Listener(), self.clock)

    async def answer(self, sender: NodeId, message: bytes) -> bytes:
        match message:
            case b"never":
                try:
                    await anyio.sleep_forever()
                finally:
                    self.cancelled = True
            case b"unknown":
                raise NotFound("no such thing")
        return message[::-1]


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    clock = LoopClock(1)
    network = MemoryNetwork(clock)
    made = Pair(network, clock)
    async with anyio.create_task_group() as tasks:
        await tasks.start(network.serve)

        async def serve(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            await made.there.serve(lambda *_: None, made.answerer.serve, task_status=task_status)

        await tasks.start(serve)
        yield made
        tasks.cancel_scope.cancel()


async def greeted(made: Pair) -> tuple[ByteStream, SecureStream]:
    """A connection of node 1, after the hellos."""
    stream = await made.here.dial("b:1")
    mine = StreamHello(node=node(1), boot=1, key=1, nonce=bytes(16))
    await stream.send(mine.encoded())
    theirs = hello_of(await stream.receive(100))
    return stream, SecureStream(KEYRING, "c", caller=mine, answerer=theirs, calling=True)


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 9, 1 << 20, (3 << 20) + 7])
async def test_a_request_of_any_size_has_its_answer(size: int) -> None:
    async with pair() as made:
        message = bytes(size // 2) + b"\x01" * (size - size // 2)
        assert await made.caller.ask(node(2), "b:1", message, 60) == message[::-1]


async def test_a_note_and_a_knock() -> None:
    async with pair() as made:
        await made.caller.note(node(2), "b:1", b"hello", 5)
        assert made.heard == [(node(1), b"hello")]
        assert await made.caller.ping(node(2), "b:1", 5)
        assert not await made.caller.ping(node(2), "nobody:1", 5)
        assert not await made.caller.ping(node(3), "b:1", 5)


async def test_somebody_else_at_an_address_is_no_answer() -> None:
    async with pair() as made:
        with pytest.raises(Unavailable, match="node 00000002 is there now"):
            await made.caller.ask(node(3), "b:1", b"hello", 5)


async def test_a_failure_is_told_in_its_words() -> None:
    async with pair() as made:
        with pytest.raises(Unavailable, match="no such thing"):
            await made.caller.ask(node(2), "b:1", b"unknown", 5)


async def test_request_ends_when_its_caller_no_longer_waits() -> None:
    async with pair() as made:
        with pytest.raises(DeadlineExceeded):
            await made.caller.ask(node(2), "b:1", b"never", 2)
        await eventually(made.clock, lambda: made.cancelled, 5)


@pytest.mark.parametrize(
    ("keyring", "cluster"),
    [(new_keyring(ManualClock(seed=9)), "c"), (KEYRING, "other"), (KEYRING.added(bytes(32)).using(2), "c")],
)
async def test_other_keys_and_clusters_get_nothing(keyring: GossipKeyring, cluster: str) -> None:
    async with pair() as made:
        stranger = made.streams(1, keyring=keyring, cluster=cluster)
        with pytest.raises((Unavailable, DeadlineExceeded)):
            await stranger.ask(node(2), "b:1", b"hello", 20)
        assert not made.heard


async def test_a_new_keyring_counts_from_the_next_connection() -> None:
    async with pair() as made:
        renewed = KEYRING.added(b"n" * 32).using(2).removed(1)
        made.caller.use(renewed)
        made.answerer.use(renewed)
        assert await made.caller.ask(node(2), "b:1", b"ab", 5) == b"ba"


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n" + bytes(100), bytes(36), b"\xc2\x01\x01\x00zzzzzzzz" + bytes(24), b""],
)
async def test_garbage_ends_its_connection_only(garbage: bytes) -> None:
    async with pair() as made:
        stream = await made.here.dial("b:1")
        await stream.send(garbage)
        await stream.send_eof()
        with anyio.fail_after(30), pytest.raises(anyio.EndOfStream):
            while True:
                await stream.receive()
        assert await made.caller.ping(node(2), "b:1", 5)


@pytest.mark.parametrize(
    "records",
    [
        [b""],
        [b"\x09" + bytes(8)],
        [next(records_of(MessageKind.ASK, bytes(10)))[:9] + bytes(11)],
        [bytes([2]) + (65 << 20).to_bytes(4, "big") + bytes(4)],
        [bytes([2]) + (5).to_bytes(4, "big") + bytes(4), bytes(6)],
    ],
)
async def test_a_member_that_breaks_the_rules_is_hung_up_on(records: list[bytes]) -> None:
    async with pair() as made:
        stream, sealed = await greeted(made)
        for record in records:
            await stream.send(sealed.seal(record))
        with anyio.fail_after(30), pytest.raises(anyio.EndOfStream):
            await stream.receive()
        assert made.answerer._held_bytes == 0 and not made.heard


async def test_silent_connection_is_closed_after_a_while() -> None:
    async with pair() as made:
        silent = [await made.here.dial("b:1") for _ in range(CALLERS)]
        await eventually(made.clock, lambda: made.answerer._callers == CALLERS, 2)
        with pytest.raises(Unavailable):
            await made.caller.ask(node(2), "b:1", b"hello", 2)
        await made.clock.sleep(6)
        assert await made.caller.ask(node(2), "b:1", b"hello", 2) == b"olleh"
        assert len(silent) == CALLERS and made.answerer._callers == 0


async def test_announced_message_holds_its_memory_for_a_minute_at_most() -> None:
    async with pair() as made:
        for _ in range(4):
            stream, sealed = await greeted(made)
            await stream.send(sealed.seal(bytes([2]) + (64 << 20).to_bytes(4, "big") + bytes(4)))
        await eventually(made.clock, lambda: made.answerer._held_bytes == 256 << 20, 2)
        with pytest.raises(Unavailable, match="too many long messages"):
            await made.caller.ask(node(2), "b:1", b"hello", 2)
        await made.clock.sleep(61)
        assert made.answerer._held_bytes == 0
        assert await made.caller.ask(node(2), "b:1", b"hello", 2) == b"olleh"


async def test_a_repeated_conversation_means_nothing() -> None:
    """What was recorded of one connection is sent over another: the answerer's nonce is another one."""
    async with pair() as made:
        stream, sealed = await greeted(made)
        recorded = sealed.seal(next(records_of(MessageKind.NOTE, b"pay", 5)))
        await stream.send(recorded)
        await eventually(made.clock, lambda: made.heard, 2)
        again, _ = await greeted(made)
        await again.send(recorded)
        await made.clock.sleep(5)
        assert made.heard == [(node(1), b"pay")]
