"""What goes over a connection between the edges of two hosts: one conversation after the other, each with a machine.

A frame is a kind, a length and so many bytes. A conversation begins with a question and its answer; if the machine may
be entered, data goes both ways, and each side says when it has said its last, and when it has heard enough. Once both
have, the next one may begin. What goes wrong in one ends the connection, and so the machine's, as an error.
"""

import asyncio
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import msgspec

from hawker.edge.splice import probe_host, reset, unheard_s, watch_peer
from hawker.ids import AppName, MachineId

P = TypeVar("P", bound=asyncio.BaseProtocol)
M = TypeVar("M")

MAX_WORD_BYTES = 4096
"""Of a question or an answer."""
_CLOSES_WITHIN_S = 5.0
_MAX_UNHEARD_BYTES = 4 << 20
_PROBED_AFTER_S = 5
"""What has no end of its own, and who let others in, is in less of a hurry to know that a host is gone."""
_HEAD = struct.Struct(">BI")


class HopFrame(IntEnum):
    QUESTION = 1
    ANSWER = 2
    DATA = 3
    END = 4
    """The sender has said its last; it goes on hearing."""
    CLOSE = 5
    """It hears no more, either. The other side says the same, and the conversation is over."""


class HopQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Into which service of which machine. `hold_s`: so long may the gate hold it and start the machine; 0 is now or
    not at all. `lasting`: it has no end of its own, so a stop of the machine does not wait for it. `datagrams`: into no
    machine; each flow in the conversation asks by itself."""

    app: AppName
    machine: MachineId
    service: int
    """Its place in the machine's config, from 0."""
    hold_s: float = 0.0
    lasting: bool = False
    datagrams: bool = False
    port: int = 0
    """Not 0: it comes from another region and names no machine. Into one of those of this region that have the app's
    port, which the asked host chooses: never into another region."""
    inside: bool = False
    """With `port`: a replay, which reaches services that nobody outside does."""
    spoken: str = ""
    """With `port`: its handlers, as the edge speaks to client and machine."""
    force: str = ""
    """With `port`: this machine's id or nobody; empty for any."""
    prefer: str = ""
    """With `port`: the id of the machine that is to have it if it can."""
    apart: tuple[MachineId, ...] = ()
    """With `port`: none of these."""


class HopAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`code` is of `Code` where it was not let in, and `why` what the app's log may say of it. `machine` is the one
    that was chosen, where the question named none."""

    let_in: bool
    """The connection leads into the machine from here on."""
    code: str = ""
    why: str = ""
    machine: MachineId | None = None


def frame(kind: HopFrame, data: bytes = b"") -> bytes:
    return _HEAD.pack(kind, len(data)) + data


def word(kind: HopFrame, message: HopQuestion | HopAnswer) -> bytes:
    data = msgspec.msgpack.encode(message)
    assert len(data) <= MAX_WORD_BYTES, "questions and answers are short"
    return frame(kind, data)


@runtime_checkable
class HostWatcher(Protocol):
    """A protocol that wants to know when the host of its other end is not heard."""

    def host_unheard(self) -> None: ...


class HopStream(asyncio.Transport):
    """One conversation: the transport of who speaks with the machine, or for it."""

    def __init__(self, line: "HopLine", protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._line = line
        self._protocol: Any = protocol
        self._paused = False
        self._ended = False  # we have said our last
        self._closing = False
        self._unheard = 0
        self._late: asyncio.TimerHandle | None = None

    # As a transport.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """All but the socket: how it is kept alive is the line's matter, which other conversations have before and
        after this one."""
        if name == "socket" or self._line.transport is None:
            return default
        return self._line.transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def host_unheard(self) -> None:
        """The other host says nothing, not even that it hears. Who can go elsewhere may do so."""
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
        if data and not self._ended and not self.is_closing():
            self._line.send(HopFrame.DATA, bytes(data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._ended and not self.is_closing():
            self._ended = True
            self._line.send(HopFrame.END)

    def close(self) -> None:
        """The other side is heard until it has closed, too, and nobody else hears it."""
        if self.is_closing():
            return
        self._closing = True
        self._line.send(HopFrame.CLOSE)
        self._line.resume()
        self._late = asyncio.get_running_loop().call_later(_CLOSES_WITHIN_S, self._line.give_up)
        self._tell_lost(None)

    def abort(self) -> None:
        self._line.give_up()

    # What the other side says.

    def hear(self, data: bytes) -> None:
        if not self._closing:
            self._protocol.data_received(data)
            return
        self._unheard += len(data)
        if self._unheard > _MAX_UNHEARD_BYTES:
            self._line.give_up()

    def hear_end(self) -> None:
        if not self._closing and not self._protocol.eof_received():
            self.close()

    def hear_close(self) -> None:
        """It is over. Whoever spoke here finds its connection closed."""
        if self._late is not None:
            self._late.cancel()
        if not self._closing:
            self._closing = True
            self._line.send(HopFrame.CLOSE)
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
    """The connection, as the protocol of its TLS. `heard` takes the questions and answers that come; `freed` is called
    when a conversation is over and another may begin, `lost` when none can."""

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
        self._why: Exception | None = None  # it was given up

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
        lost = self._why or error or ConnectionResetError("the other edge closed the connection")
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
        if self.transport is not None:
            self.transport.write(frame(kind, data))

    def say(self, kind: HopFrame, message: HopQuestion | HopAnswer) -> None:
        self._answered = False
        if self.transport is not None:
            self.transport.write(word(kind, message))

    def open(self, protocol: P) -> P:
        """A conversation, whose transport `protocol` gets."""
        assert self._stream is None, "one after the other"
        self._answered = False
        stream = self._stream = HopStream(self, protocol)
        protocol.connection_made(stream)
        asyncio.get_running_loop().call_soon(self._read)
        return protocol

    def pause(self) -> None:
        if self.transport is not None:
            self.transport.pause_reading()

    def resume(self) -> None:
        if self.transport is not None:
            self.transport.resume_reading()
            asyncio.get_running_loop().call_soon(self._read)

    @property
    def unheard_s(self) -> float:
        """How long nothing has come from the other host."""
        return 0.0 if self.transport is None else unheard_s(self.transport)

    def host_unheard(self) -> None:
        if self._stream is not None:
            self._stream.host_unheard()

    def give_up(self, why: Exception | None = None) -> None:
        """Both ends see that something went wrong."""
        if self.transport is not None:
            self._why = self._why or why
            reset(self.transport)

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
        if self._stream is None:
            self.give_up()
            return False
        self._stream.hear(data)
        return True

    def _next(self) -> bool:
        """Whether a frame began."""
        if len(self._buffer) < _HEAD.size:
            return False
        kind, length = _HEAD.unpack_from(self._buffer)
        if kind == HopFrame.DATA:
            del self._buffer[: _HEAD.size]
            self._left = length
            return True
        if kind not in set(HopFrame) or length > MAX_WORD_BYTES:
            self._buffer.clear()
            self.give_up()
            return False
        end = _HEAD.size + length
        if len(self._buffer) < end:
            return False
        data = bytes(self._buffer[_HEAD.size : end])
        del self._buffer[:end]
        self._take(HopFrame(kind), data)
        return True

    def _take(self, kind: HopFrame, data: bytes) -> None:
        if kind in (HopFrame.QUESTION, HopFrame.ANSWER):
            if self._stream is None:
                self._answered = kind is HopFrame.ANSWER
                self._heard(kind, data)
            else:
                self.give_up()
        elif self._stream is None:
            self.give_up()
        elif kind is HopFrame.END:
            self._stream.hear_end()
        else:
            stream, self._stream = self._stream, None
            stream.hear_close()
            self._freed()


def read_word(data: bytes, kind: type[M]) -> M:
    """Raises `ValueError`."""
    return msgspec.msgpack.decode(data, type=kind)
