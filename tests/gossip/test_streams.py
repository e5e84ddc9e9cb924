"""Conversations over streams, with callers that do everything wrong."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from anyio.abc import ByteStream
from hypothesis import given
from hypothesis import strategies as st

from hawker.clock import ManualClock
from hawker.errors import DeadlineExceeded, NotFound, Unavailable
from hawker.gossip.contract import Listener
from hawker.gossip.keyring import GossipKeyring, new_keyring
from hawker.gossip.memory_network import MemoryNetwork
from hawker.gossip.streams import (
    CALLERS,
    HELLO_BYTES,
    LENGTH_BYTES,
    MESSAGE_BYTES,
    RECORD_BYTES,
    TAG_BYTES,
    BrokenStream,
    MessageKind,
    SecureStream,
    StreamHello,
    Streams,
    head_of,
    hello_of,
    length_of,
    records_of,
)
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


RING = new_keyring(ManualClock())


def hello(name: str = "a", boot: int = 1, key: int = 1, nonce: bytes = b"n") -> StreamHello:
    return StreamHello(node=NodeId(name * 8), boot=boot, key=key, nonce=nonce * 16)


CALLER, ANSWERER = hello("a"), hello("b")


def ends(ring: GossipKeyring = RING, cluster: str = "c", other: str = "c") -> tuple[SecureStream, SecureStream]:
    calling = SecureStream(ring, cluster, caller=CALLER, answerer=ANSWERER, calling=True)
    return calling, SecureStream(RING, other, caller=CALLER, answerer=ANSWERER, calling=False)


def opened(end: SecureStream, record: bytes) -> bytes:
    return end.open(record[:LENGTH_BYTES], record[LENGTH_BYTES:])


def test_a_hello_comes_back() -> None:
    assert hello_of(CALLER.encoded()) == CALLER and len(CALLER.encoded()) == HELLO_BYTES


@given(st.binary(min_size=HELLO_BYTES, max_size=HELLO_BYTES))
def test_any_bytes_are_a_hello_or_broken(data: bytes) -> None:
    with suppress(BrokenStream):
        hello_of(data)


@given(st.lists(st.binary(min_size=1, max_size=100), max_size=5))
def test_records_come_as_they_went_in_both_directions(records: list[bytes]) -> None:
    calling, answering = ends()
    for record in records:
        assert opened(answering, calling.seal(record)) == record
        assert opened(calling, answering.seal(record)) == record


def test_a_record_counts_once_and_in_its_place() -> None:
    calling, answering = ends()
    first, second = calling.seal(b"1"), calling.seal(b"2")
    with pytest.raises(BrokenStream):
        opened(answering, second)
    assert opened(answering, first) == b"1"
    with pytest.raises(BrokenStream):
        opened(answering, first)


def test_a_record_of_another_connection_is_nothing_here() -> None:
    calling, _ = ends()
    other = SecureStream(RING, "c", caller=CALLER, answerer=hello("b", nonce=b"m"), calling=False)
    with pytest.raises(BrokenStream):
        opened(other, calling.seal(b"1"))


def test_record_of_one_direction_does_not_open_in_the_other() -> None:
    calling, _ = ends()
    with pytest.raises(BrokenStream):
        opened(calling, calling.seal(b"1"))


def test_another_cluster_or_key_is_broken() -> None:
    for calling, answering in (ends(other="d"), ends(ring=new_keyring(ManualClock(seed=3)))):
        with pytest.raises(BrokenStream):
            opened(answering, calling.seal(b"1"))


def test_a_key_that_is_not_in_the_ring_is_refused() -> None:
    with pytest.raises(BrokenStream, match="no key 9"):
        SecureStream(RING, "c", caller=hello(key=9), answerer=hello("b", key=9), calling=False)
    with pytest.raises(BrokenStream):
        SecureStream(RING, "c", caller=hello(key=1), answerer=hello("b", key=2), calling=True)


@pytest.mark.parametrize("length", [0, TAG_BYTES, RECORD_BYTES + TAG_BYTES + 1, 2**32 - 1])
def test_a_length_is_judged_before_anything_is_read(length: int) -> None:
    with pytest.raises(BrokenStream):
        length_of(length.to_bytes(LENGTH_BYTES, "big"))


@pytest.mark.parametrize("size", [0, 1, RECORD_BYTES - 9, RECORD_BYTES - 8, RECORD_BYTES * 2 + 5])
def test_a_message_is_its_parts(size: int) -> None:
    records = list(records_of(MessageKind.ASK, bytes(size), 1.5))
    opening = head_of(records[0])
    assert (opening.kind, opening.size, opening.within_s) == (MessageKind.ASK, size, 1.5)
    assert all(0 < len(record) <= RECORD_BYTES for record in records)
    assert len(opening.part) + sum(map(len, records[1:])) == size


@given(st.binary(max_size=40))
def test_any_bytes_open_a_message_or_are_broken(record: bytes) -> None:
    with suppress(BrokenStream):
        assert head_of(record).size <= MESSAGE_BYTES


def test_a_message_that_is_too_long_is_refused_by_its_first_record() -> None:
    record = next(records_of(MessageKind.ASK, bytes(1000)))
    with pytest.raises(BrokenStream, match="1000 bytes"):
        head_of(record, most=999)
