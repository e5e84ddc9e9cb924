"""Conversations over streams: one request and its answer a connection, sealed, bounded in number, bytes and time.

Knows no sockets: a stream comes from a `MeshTransport`. An unknown caller can take one of a few
places for some seconds; only a caller that has the key can make this node hold a message in memory.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

from hawker.clock import Clock
from hawker.errors import DeadlineExceeded, HawkerError, Unavailable
from hawker.gossip.contract import MeshTransport
from hawker.gossip.keyring import GossipKeyring
from hawker.gossip.listener import Listener
from hawker.gossip.secure_stream import (
    HELLO_BYTES,
    LENGTH_BYTES,
    NONCE_BYTES,
    BrokenStream,
    MessageHead,
    MessageKind,
    SecureStream,
    StreamHello,
    head_of,
    hello_of,
    length_of,
    records_of,
)
from hawker.ids import NodeId

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
        """One connection of a stranger, to its end. What it does wrong ends it, and nothing else."""
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
