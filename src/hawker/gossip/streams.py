"""Conversations over streams: one request and its answer a connection, sealed, bounded in number, bytes and time.

Knows no sockets: a stream comes from a `MeshTransport`. An unknown caller can take one of a few places for some
seconds; only a caller that has the key can make this node hold a message in memory.
"""

import hashlib
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from enum import IntEnum

import anyio
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hawker.clock import Clock
from hawker.errors import DeadlineExceeded, HawkerError, Unavailable
from hawker.gossip.contract import Listener, MeshTransport
from hawker.gossip.keyring import GossipKeyring
from hawker.ids import NodeId
from hawker.value_object import ValueObject

RECORD_BYTES = 1 << 20
MESSAGE_BYTES = 64 << 20
LENGTH_BYTES = 4
TAG_BYTES = 16
MAGIC = 0xC2
NONCE_BYTES = 16
_HELLO = struct.Struct(">BBBx8sQ16s")
HELLO_BYTES = _HELLO.size
_OPENING = struct.Struct(">BII")
_MOST_MS = (1 << 32) - 1


# Encrypted streams: two hellos, then sealed records of at most 1 MiB, which make messages of up to 64 MiB. Pure.
# Each connection has keys of its own, one a direction, of the cluster's key and both hellos; so nothing of another
# connection can be repeated in it, and records count from 0. `length 4, sealed`; the length is authenticated too.


class BrokenStream(ValueError):
    """The bytes are no stream of this cluster: not authentic, too long, or out of order."""


class MessageKind(IntEnum):
    NOTE = 1  # a message; the answer only says that it came
    ASK = 2
    ANSWER = 3
    FAILURE = 4  # instead of an answer; the text says why
    PING = 5  # are you there


class StreamHello(ValueObject, frozen=True, kw_only=True):
    """`key` is the number of the key that the caller seals with; the answer's is the same."""

    node: NodeId
    boot: int
    """The number that says which life of the caller's process this is."""
    key: int
    nonce: bytes
    """Random bytes that make the keys of this stream its own."""

    def encoded(self) -> bytes:
        return _HELLO.pack(MAGIC, 1, self.key, self.node.encode(), self.boot, self.nonce)


def hello_of(data: bytes) -> StreamHello:
    """The hello that `data` is. Raises `BrokenStream`."""
    magic, _, key, name, boot, nonce = _HELLO.unpack(data)
    if magic != MAGIC or not all(byte in b"0123456789abcdef" for byte in name):
        raise BrokenStream("no hello of a node")
    return StreamHello(node=NodeId(name.decode()), boot=boot, key=key, nonce=nonce)


class SecureStream:
    """One end of a connection after the hellos."""

    def __init__(
        self, keyring: GossipKeyring, cluster: str, *, caller: StreamHello, answerer: StreamHello, calling: bool
    ) -> None:
        key = keyring.keys.get(caller.key)
        if key is None or caller.key != answerer.key:
            raise BrokenStream(f"no key {caller.key} in the keyring")
        info = b"cp1 stream" + hashlib.sha256(caller.encoded() + answerer.encoded() + cluster.encode()).digest()
        keys = HKDF(algorithm=SHA256(), length=64, salt=None, info=info).derive(key)
        there, back = AESGCM(keys[:32]), AESGCM(keys[32:])
        self._out, self._in = (there, back) if calling else (back, there)
        self._sent = self._received = 0

    def seal(self, record: bytes) -> bytes:
        assert len(record) <= RECORD_BYTES
        length = (len(record) + TAG_BYTES).to_bytes(LENGTH_BYTES, "big")
        sealed = self._out.encrypt(self._sent.to_bytes(12, "big"), record, length)
        self._sent += 1
        return length + sealed

    def open(self, length: bytes, sealed: bytes) -> bytes:
        """The next record in clear. Raises `BrokenStream`."""
        try:
            record = self._in.decrypt(self._received.to_bytes(12, "big"), sealed, length)
        except InvalidTag as error:
            raise BrokenStream("a record that was not sealed for this connection") from error
        self._received += 1
        return record


def length_of(head: bytes) -> int:
    """The number of bytes that follow. Raises `BrokenStream` for more than a record may have, before any is read."""
    length = int.from_bytes(head, "big")
    if not TAG_BYTES < length <= RECORD_BYTES + TAG_BYTES:
        raise BrokenStream(f"a record of {length} bytes")
    return length


class MessageHead(ValueObject, frozen=True):
    """The beginning of a message: `size` bytes in all, `part` of them here, answered within `within_s`."""

    kind: MessageKind
    size: int
    within_s: float
    part: bytes


def head_of(record: bytes, most: int = MESSAGE_BYTES) -> MessageHead:
    """The beginning of a message that a record is. Raises `BrokenStream`."""
    if len(record) < _OPENING.size:
        raise BrokenStream("a message without a beginning")
    number, size, within_ms = _OPENING.unpack_from(record)
    part = record[_OPENING.size :]
    if number not in MessageKind.__members__.values() or size > most or len(part) > size:
        raise BrokenStream(f"a message of kind {number} and {size} bytes")
    return MessageHead(MessageKind(number), size, within_ms / 1000, part)


def records_of(kind: MessageKind, message: bytes, within_s: float = 0.0) -> Iterator[bytes]:
    """The message in parts, each a record to seal."""
    opening = _OPENING.pack(kind, len(message), min(_MOST_MS, int(within_s * 1000)))
    first = RECORD_BYTES - len(opening)
    yield opening + message[:first]
    for at in range(first, len(message), RECORD_BYTES):
        yield message[at : at + RECORD_BYTES]


CALLERS = 64
CALLS = 64
HELD_BYTES = 256 << 20
_HELLO_S = 5.0
_MESSAGE_S = 60.0
_ANSWER_S = 60.0
_GONE = (OSError, EOFError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


class _Line:
    """A connection whose records are sealed."""

    def __init__(self, stream: ByteStream, reader: BufferedByteReceiveStream, sealed: SecureStream) -> None:
        self._stream, self._reader, self._sealed = stream, reader, sealed

    async def say(self, kind: MessageKind, message: bytes, within_s: float = 0.0) -> None:
        for record in records_of(kind, message, within_s):
            await self._stream.send(self._sealed.seal(record))

    async def opening(self) -> MessageHead:
        return head_of(await self._record())

    async def rest(self, opening: MessageHead) -> bytes:
        """Raises `BrokenStream` when there is more than was announced."""
        parts, size = [opening.part], len(opening.part)
        while size < opening.size:
            parts.append(await self._record())
            size += len(parts[-1])
        if size > opening.size:
            raise BrokenStream("more than was announced")
        return b"".join(parts)

    async def _record(self) -> bytes:
        head = await self._reader.receive_exactly(LENGTH_BYTES)
        return self._sealed.open(head, await self._reader.receive_exactly(length_of(head)))


class Streams:
    def __init__(
        self,
        node: NodeId,
        boot: int,
        cluster: str,
        keyring: GossipKeyring,
        transport: MeshTransport,
        listener: Listener,
        clock: Clock,
    ) -> None:
        self._node, self._boot, self._cluster, self._keyring = node, boot, cluster, keyring
        self._transport, self._listener, self._clock = transport, listener, clock
        self._callers = 0
        self._held_bytes = 0
        self._calls = anyio.CapacityLimiter(CALLS)

    def use(self, keyring: GossipKeyring) -> None:
        self._keyring = keyring

    # Asking.

    async def ask(self, node: NodeId, address: str, message: bytes, timeout_s: float) -> bytes:
        return await self._call(MessageKind.ASK, node, address, message, timeout_s)

    async def note(self, node: NodeId, address: str, message: bytes, timeout_s: float) -> None:
        await self._call(MessageKind.NOTE, node, address, message, timeout_s)

    async def ping(self, node: NodeId, address: str, timeout_s: float) -> bool:
        """Whether it is there and has the key."""
        try:
            await self._call(MessageKind.PING, node, address, b"", timeout_s)
        except HawkerError:
            return False
        return True

    async def _call(self, kind: MessageKind, node: NodeId, address: str, message: bytes, timeout_s: float) -> bytes:
        """Raises `Unavailable`, `DeadlineExceeded`."""
        try:
            with anyio.fail_after(timeout_s):
                async with self._calls, self._dialled(address, node) as line:
                    await line.say(kind, message, timeout_s)
                    opening = await line.opening()
                    answer = await line.rest(opening)
        except TimeoutError as error:
            raise DeadlineExceeded(f"node {node} at {address} did not answer within {timeout_s:g} s") from error
        except (*_GONE, BrokenStream, anyio.IncompleteRead) as error:
            raise Unavailable(f"node {node} at {address} gave no answer: {error or type(error).__name__}") from error
        if opening.kind is not MessageKind.ANSWER:
            raise Unavailable(f"node {node} refused: {answer[:1000].decode(errors='replace')}")
        return answer

    @asynccontextmanager
    async def _dialled(self, address: str, node: NodeId) -> AsyncIterator[_Line]:
        stream = await self._transport.dial(address)
        try:
            reader = BufferedByteReceiveStream(stream)
            mine = self._hello(self._keyring.primary)
            await stream.send(mine.encoded())
            theirs = hello_of(await reader.receive_exactly(HELLO_BYTES))
            if theirs.node != node:
                raise BrokenStream(f"node {theirs.node} is there now")
            yield _Line(
                stream, reader, SecureStream(self._keyring, self._cluster, caller=mine, answerer=theirs, calling=True)
            )
        finally:
            await anyio.aclose_forcefully(stream)

    def _hello(self, key: int) -> StreamHello:
        return StreamHello(node=self._node, boot=self._boot, key=key, nonce=self._clock.token_bytes(NONCE_BYTES))

    # Answering.

    async def serve(self, stream: ByteStream) -> None:
        """Serves one connection of a stranger, to its end. What it does wrong ends it, and nothing else."""
        try:
            if self._callers < CALLERS:
                self._callers += 1
                try:
                    await self._converse(stream)
                finally:
                    self._callers -= 1
        except (*_GONE, BrokenStream, anyio.IncompleteRead, TimeoutError):
            return
        finally:
            await anyio.aclose_forcefully(stream)

    async def _converse(self, stream: ByteStream) -> None:
        reader = BufferedByteReceiveStream(stream)
        with anyio.fail_after(_HELLO_S):
            theirs = hello_of(await reader.receive_exactly(HELLO_BYTES))
            mine = self._hello(theirs.key)
            sealed = SecureStream(self._keyring, self._cluster, caller=theirs, answerer=mine, calling=False)
            await stream.send(mine.encoded())
            line = _Line(stream, reader, sealed)
            opening = await line.opening()  # from here on it is known who calls
        if self._held_bytes + opening.size > HELD_BYTES:
            await _say(line, MessageKind.FAILURE, b"too many long messages at once; try again")
            return
        self._held_bytes += opening.size
        try:
            await self._answer(line, theirs.node, opening)
        finally:
            self._held_bytes -= opening.size

    async def _answer(self, line: _Line, caller: NodeId, opening: MessageHead) -> None:
        with anyio.fail_after(_MESSAGE_S):
            message = await line.rest(opening)
        if opening.kind is MessageKind.ASK:
            await self._answer_request(line, caller, message, opening.within_s)
        elif opening.kind is MessageKind.NOTE:
            self._listener.message(caller, message)
            await _say(line, MessageKind.ANSWER, b"")
        elif opening.kind is MessageKind.PING:
            await _say(line, MessageKind.ANSWER, b"")

    async def _answer_request(self, line: _Line, caller: NodeId, message: bytes, within_s: float) -> None:
        """For no longer than the caller waits."""
        with anyio.move_on_after(within_s):
            try:
                kind, answer = MessageKind.ANSWER, await self._listener.request(caller, message)
            except HawkerError as error:
                kind, answer = MessageKind.FAILURE, str(error).encode()
            await _say(line, kind, answer)


async def _say(line: _Line, kind: MessageKind, answer: bytes) -> None:
    with anyio.fail_after(_ANSWER_S):
        await line.say(kind, answer)
