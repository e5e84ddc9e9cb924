"""What goes over a connection between the edges of two hosts: one conversation after the other, each with a machine.

A frame is a kind, a length and so many bytes. A conversation begins with a question and its answer; if the machine may
be entered, data goes both ways, and each side says when it has said its last, and when it has heard enough. Once both
have, the next one may begin. What goes wrong in one ends the connection, and so the machine's, as an error.

A gate that says so in an answer (`keeps`) is spoken to in fewer words from then on. What is to go into the machine may
come with the question, and who has heard a whole answer of the machine says `REST`: then the conversation is over
without a word of the gate's, and the machine's connection may be used for the next one. What the gate had sent before
it heard that is skipped, up to its next answer.
"""

import asyncio
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from msgspec.structs import replace

from hawker.edge.hop_frames import FIRST_BYTES, HEAD, MAX_WORD_BYTES, HopAnswer, HopFrame, HopQuestion, frame, word
from hawker.edge.splice import probe_host, reset, unheard_s, watch_peer

P = TypeVar("P", bound=asyncio.BaseProtocol)

_CLOSES_WITHIN_S = 5.0
_MAX_UNHEARD_BYTES = 4 << 20
_PROBED_AFTER_S = 5
"""Seconds of silence before the other host is probed, for connections in less of a hurry: those that have no end of
their own, and those of the host that lets others in."""
_COUNT = struct.Struct(">Q")
_KINDS = {int(kind): kind for kind in HopFrame}
_NOT_ALL = (1 << 64) - 1
"""The number of heard bytes that a side says when it does not want the machine's connection to be used again."""


@runtime_checkable
class HostWatcher(Protocol):
    """A protocol that is told when the host of its other end is not heard."""

    def host_unheard(self) -> None: ...


class HeardOut(ABC):
    """A protocol that is told when a conversation is over and the other side has heard all of it. It is inherited,
    since each request asks for it."""

    @abstractmethod
    def heard_out(self) -> None: ...


class HopStream(asyncio.Transport):
    """One conversation: the transport of the protocol that speaks with the machine, or for it. With a `question` the
    gate is asked when the first bytes are written, and has let nobody in before `let_in` is called."""

    def __init__(self, line: "HopLine", protocol: asyncio.BaseProtocol, question: HopQuestion | None = None) -> None:
        super().__init__()
        self._line = line
        self._protocol: Any = protocol
        self._question, self._came_first = question, question is not None
        self._later = b""  # goes once it is let in
        self.asks = question is not None
        self._heard = self._said = 0  # bytes of data
        self._paused = False
        self._ended = False  # we have said our last
        self._closing = False
        self._unheard = 0
        self._late: asyncio.TimerHandle | None = None

    # As a transport.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The line's information but the socket: how that is kept alive is the line's matter, which has other
        conversations before and after this one."""
        if name == "socket" or self._line.transport is None:
            return default
        return self._line.transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def host_unheard(self) -> None:
        """Tell the protocol that the other host says nothing, not even that it hears: a request that can go elsewhere
        may do so."""
        if not self._closing and isinstance(self._protocol, HostWatcher):
            self._protocol.host_unheard()

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def is_closing(self) -> bool:
        return self._closing or self._line.transport is None

    def is_reading(self) -> bool:
        return not self._paused

    def pause_reading(self) -> None:
        if not self._paused and not self.is_closing():
            self._paused = True
            self._line.pause()

    def resume_reading(self) -> None:
        if self._paused and not self.is_closing():
            self._paused = False
            self._line.resume()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._line.transport is not None:
            self._line.transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return 0 if self._line.transport is None else self._line.transport.get_write_buffer_size()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not data or self._ended or self.is_closing():
            return
        if self.asks:
            self._ask(bytes(data))
            return
        self._said += len(data)
        self._line.send(HopFrame.DATA, bytes(data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._ended and not self.is_closing():
            self._ended = True
            self._line.send(HopFrame.END)

    def close(self) -> None:
        """End the conversation. The other side is read until it has closed, too, and its bytes are dropped; a gate that
        keeps is not read."""
        if self.is_closing():
            return
        if self.asks:
            self.abort()
            return
        self._closing = True
        if self._line.keeps:
            self._line.leave(_NOT_ALL)
            self._tell_lost(None)
            return
        self._line.send(HopFrame.CLOSE)
        self._line.resume()
        self._late = asyncio.get_running_loop().call_later(_CLOSES_WITHIN_S, self._line.give_up)
        self._tell_lost(None)

    def abort(self) -> None:
        self._line.give_up()

    def rest(self) -> None:
        """End a conversation with a gate that keeps, by the side that has asked: it has heard all that it wants."""
        if not self.is_closing():
            self._closing = True
            self._protocol = None
            self._line.leave(self._heard)

    def let_in(self) -> None:
        """Go on: the gate has let the conversation in."""
        self.asks = False
        if self._later:
            self.write(self._later)

    @property
    def keeps(self) -> bool:
        """Whether the conversation may `rest`. Only a conversation whose bytes come with its question is given a
        connection that rests, so no other leaves one: there would be more and more."""
        return self._came_first and self._line.keeps

    def _ask(self, data: bytes) -> None:
        question, self._question = self._question, None
        if question is not None and len(data) <= FIRST_BYTES:
            self._line.say(HopFrame.QUESTION, replace(question, first=data))
            return
        self._later += data
        if question is not None:
            self._line.say(HopFrame.QUESTION, question)

    # What the other side says.

    def hear(self, data: bytes) -> None:
        if not self._closing:
            self._heard += len(data)
            self._protocol.data_received(data)
            return
        self._unheard += len(data)
        if self._unheard > _MAX_UNHEARD_BYTES:
            self._line.give_up()

    def hear_end(self) -> None:
        if not self._closing and not self._protocol.eof_received():
            self.close()

    def hear_close(self) -> None:
        """End the conversation, which the other side has closed. The protocol here finds its connection closed."""
        if self._late is not None:
            self._late.cancel()
        if not self._closing:
            self._closing = True
            self._line.send(HopFrame.CLOSE)
            self._tell_lost(None)

    def hear_rest(self, heard: int) -> None:
        """End the conversation: the other side wants no more, and has heard so many bytes."""
        if self._late is not None:
            self._late.cancel()
        if not self._closing:
            self._closing = True
            if heard == self._said and isinstance(self._protocol, HeardOut):
                self._protocol.heard_out()
            else:
                self._tell_lost(None)

    def lose(self, error: Exception) -> None:
        if self._late is not None:
            self._late.cancel()
        if not self._closing:
            self._closing = True
            self._tell_lost(error)

    def pause_writing(self) -> None:
        if not self._closing:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if not self._closing:
            self._protocol.resume_writing()

    @property
    def holds(self) -> bool:
        return self._paused and not self._closing

    def _tell_lost(self, error: Exception | None) -> None:
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)


class HopLine(asyncio.Protocol):
    """A connection between the edges of two hosts, as the protocol of its TLS. `heard` takes the questions and answers
    that come; `freed` is called when a conversation is over and another may begin, `lost` when none can."""

    def __init__(
        self,
        heard: Callable[[HopFrame, bytes], None],
        freed: Callable[[], None],
        lost: Callable[[Exception], None],
    ) -> None:
        self.transport: asyncio.Transport | None = None
        self._heard = heard
        self._freed = freed
        self._lost = lost
        self._buffer = bytearray()
        self._left = 0  # of the data that is coming
        self._stream: HopStream | None = None
        self._answered = False  # what follows an answer waits until there is somebody who hears it
        self._reading = False
        self._why: Exception | None = None  # it was given up, or lost
        self._unsaid = b""  # goes with the next frame
        self._skipped: int | None = None  # bytes of a conversation that was left; None once the next one is answered
        self.keeps = False  # the gate at the other end has said so

    @property
    def is_free(self) -> bool:
        return self.transport is not None and self._stream is None and not self.transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        watch_peer(transport)
        probe_host(transport, _PROBED_AFTER_S)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._answered and len(self._buffer) > _MAX_UNHEARD_BYTES:
            self.give_up()
        else:
            self._read()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        lost = self._why = self._why or error or ConnectionResetError("the other edge closed the connection")
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.lose(lost)
        self._lost(lost)

    def pause_writing(self) -> None:
        if self._stream is not None:
            self._stream.pause_writing()

    def resume_writing(self) -> None:
        if self._stream is not None:
            self._stream.resume_writing()

    def send(self, kind: HopFrame, data: bytes = b"") -> None:
        self._write(frame(kind, data))

    def say(self, kind: HopFrame, message: HopQuestion | HopAnswer, *, soon: bool = False) -> None:
        """Send a question or an answer. With `soon` it may wait for the next frame, or for `flush`."""
        self._answered = False
        if soon:
            self._unsaid += word(kind, message)
        else:
            self._write(word(kind, message))

    def flush(self) -> None:
        if self._unsaid:
            self._write(b"")

    def open(self, protocol: P, question: HopQuestion | None = None) -> P:
        """Begin a conversation, whose transport `protocol` gets. With a `question` the gate is yet to be asked. The
        connection may have been lost since the gate answered: then `protocol` is told so, as of any other loss."""
        assert self._stream is None, "one after the other"
        self._answered = False
        stream = self._stream = HopStream(self, protocol, question)
        protocol.connection_made(stream)
        if self.transport is None and self._why is not None:
            self._stream = None
            stream.lose(self._why)
        elif self._buffer:
            asyncio.get_running_loop().call_soon(self._read)
        return protocol

    def let_in(self) -> None:
        """Let the conversation go on that asked with its first bytes: the gate has let it in."""
        if self._stream is not None:
            self._stream.let_in()

    def refuse(self) -> None:
        """Drop the conversation that the gate did not let in: it has not begun."""
        self._stream = None

    def leave(self, heard: int) -> None:
        """End the conversation for both sides, with `REST`. The next question, if one comes at once, goes with that
        frame."""
        self._unsaid += frame(HopFrame.REST, _COUNT.pack(heard))
        asyncio.get_running_loop().call_soon(self.flush)
        stream, self._stream, self._skipped = self._stream, None, 0
        if stream is not None and not stream.is_reading():
            self.resume()
        self._freed()

    def pause(self) -> None:
        if self.transport is not None:
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.transport is not None:
            self.transport.resume_reading()
            asyncio.get_running_loop().call_soon(self._read)

    @property
    def unheard_s(self) -> float:
        """Seconds for which the other host has sent nothing."""
        return 0.0 if self.transport is None else unheard_s(self.transport)

    def host_unheard(self) -> None:
        if self._stream is not None:
            self._stream.host_unheard()

    def close(self) -> None:
        """Close the connection: no conversation is to go over it any more."""
        self.flush()
        if self.transport is not None:
            self.transport.close()

    def give_up(self, why: Exception | None = None) -> None:
        """Reset the connection, so that both ends see that something went wrong."""
        if self.transport is not None:
            self._why = self._why or why
            reset(self.transport)

    def _write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(self._unsaid + data)
            self._unsaid = b""

    def _read(self) -> None:
        """What is whole of what has come. What a reader does may lead here again: then the first one goes on."""
        if self._reading:
            return
        self._reading = True
        try:
            while self._buffer and not self._answered and not (self._stream is not None and self._stream.holds):
                if not (self._pass_on() if self._left else self._next()):
                    break
        finally:
            self._reading = False

    def _pass_on(self) -> bool:
        """Data, as much as is there."""
        data = bytes(self._buffer[: self._left])
        del self._buffer[: len(data)]
        self._left -= len(data)
        if self._stream is None or self._stream.asks:
            return self._skip(len(data))
        self._stream.hear(data)
        return True

    def _skip(self, size: int) -> bool:
        """Whether it may be of a conversation that was left."""
        if self._skipped is None or self._skipped + size > _MAX_UNHEARD_BYTES:
            self.give_up()
            return False
        self._skipped += size
        return True

    def _next(self) -> bool:
        """Whether a frame began."""
        if len(self._buffer) < HEAD.size:
            return False
        kind, length = HEAD.unpack_from(self._buffer)
        if kind == HopFrame.DATA:
            del self._buffer[: HEAD.size]
            self._left = length
            return True
        known = _KINDS.get(kind)
        if known is None or length > MAX_WORD_BYTES:
            self._buffer.clear()
            self.give_up()
            return False
        end = HEAD.size + length
        if len(self._buffer) < end:
            return False
        data = bytes(self._buffer[HEAD.size : end])
        del self._buffer[:end]
        self._take(known, data)
        return True

    def _take(self, kind: HopFrame, data: bytes) -> None:
        stream = self._stream
        is_word = kind in (HopFrame.QUESTION, HopFrame.ANSWER)
        if stream is None or stream.asks:
            if is_word:
                self._answered = kind is HopFrame.ANSWER and stream is None
                self._skipped = None
                self._heard(kind, data)
            elif kind is HopFrame.REST:
                self.give_up()
            else:
                self._skip(0)
        elif kind is HopFrame.END:
            stream.hear_end()
        elif is_word or (kind is HopFrame.REST and len(data) != _COUNT.size):
            self.give_up()
        else:
            self._stream = None
            if kind is HopFrame.CLOSE:
                stream.hear_close()
            else:
                stream.hear_rest(*_COUNT.unpack(data))
            self._freed()
