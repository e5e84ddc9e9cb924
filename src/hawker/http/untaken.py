"""Clients that leave their answers lying: since when one has taken nothing, and how much may wait for one of HTTP/2.

Progress is what the client's kernel acknowledges: the kernel here keeps megabytes, for which a slow line takes minutes,
and an answer to a probe of it says nothing. Few connections are looked at, and each of them seldom.
"""

import asyncio
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

UNTAKEN_S, CROWDED_S = 60.0, 15.0
"""Seconds in which a client may take nothing: of a connection or a stream; of a stream that holds up the others of its
connection."""
CROWD_BYTES, ROOM_BYTES = 1 << 20, 768 << 10
"""Bytes that may wait for one client of HTTP/2 on all of its streams together. Above the first number nothing is added
until no more than the second wait."""
_LOOK_S, _ASK_S = 5.0, 30.0
_TCP_INFO = struct.Struct("=24xI92xQ16xI")  # of `tcp_info`: packets under way, bytes acknowledged, bytes not sent yet
_HEARD = struct.Struct("=24xI24xII")  # of `tcp_info`: packets under way, milliseconds since data, and acknowledgements


def is_deaf(transport: asyncio.BaseTransport, for_s: float) -> bool:
    """Whether bytes are on their way and the client's kernel has sent nothing for `for_s` seconds: the client is gone.
    A client that keeps its window shut is alive, and our kernel asks it by itself."""
    told = _tcp_info(transport, _HEARD.size)
    if len(told) != _HEARD.size:
        return False
    under_way, *silent_ms = _HEARD.unpack(told)
    deaf: bool = under_way > 0 and min(silent_ms) >= 1000 * for_s
    return deaf


class Untaken:
    """The time for which the client of one connection has taken nothing."""

    __slots__ = ("_acknowledged", "_ask_at", "_buffered", "_left", "_look_at", "_since", "on_its_way")

    def __init__(self) -> None:
        self._ask_at, self._left = 0.0, -1
        self.forget()

    def is_gone(self, transport: asyncio.Transport, now: float) -> bool:
        """To be called now and then: whether the client `is_deaf`, also while nothing waits for it here. The bytes on
        their way have been so for half a minute: bytes that were sent just now prove nothing."""
        if now < self._ask_at:
            return False
        self._ask_at, left = now + _ASK_S, self._left
        acknowledged, unacknowledged = _told(transport)
        self._left = acknowledged if unacknowledged else -1
        return left == self._left != -1 and is_deaf(transport, UNTAKEN_S)

    def forget(self) -> None:
        """Begin anew: the client takes all that there is for it."""
        self._acknowledged, self._buffered, self._since, self._look_at = -1, 0, 0.0, 0.0
        self.on_its_way = False  # something was written that has not come there, at the last look

    def too_long(self, transport: asyncio.Transport, now: float) -> bool:
        """To be called now and then while bytes wait for the client: whether it has taken nothing for `UNTAKEN_S`
        seconds."""
        if now < self._look_at:
            return False
        self._look_at, buffered = now + _LOOK_S, transport.get_write_buffer_size()
        acknowledged, unacknowledged = _told(transport)
        self.on_its_way = bool(buffered or unacknowledged)
        if acknowledged > self._acknowledged or buffered < self._buffered or not self.on_its_way:
            self._since = now
        self._acknowledged, self._buffered = acknowledged, buffered
        return now - self._since >= UNTAKEN_S


def _told(transport: asyncio.Transport) -> tuple[int, int]:
    """How many bytes the other end has acknowledged; not 0, if there are some that it has not."""
    told = _tcp_info(transport, _TCP_INFO.size)
    if len(told) != _TCP_INFO.size:  # what the process keeps itself must do
        return 0, 0
    under_way, acknowledged, unsent = _TCP_INFO.unpack(told)
    return acknowledged, under_way + unsent


def _tcp_info(transport: asyncio.BaseTransport, size: int) -> bytes:
    """Its first bytes; fewer where the kernel does not tell, as of a connection that is not TCP."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):  # it has ended already
            told: bytes = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
            return told
    return b""


class Choked(Protocol):
    """A sender that may have to wait before it sends more."""

    def tell_room(self) -> None:
        """Tell the sender that there may now be room for more, or room no more."""


class Waiting(Protocol):
    """The bytes that wait to be sent in a session of HTTP/2."""

    @property
    def waiting(self) -> int: ...

    def waiting_on(self, stream: int) -> int:
        """How many bytes wait on this stream."""

    def untaken(self, now: float, for_s: float, *, excused: bool) -> list[int]:
        """The streams on which bytes wait and none has gone for `for_s` seconds."""


class UntakenStreams:
    """The time for which the client of an HTTP/2 connection has taken nothing of its streams. While too much waits on
    its `streams` together they are `crowded`."""

    def __init__(self, session: Waiting, streams: Mapping[int, Choked]) -> None:
        self._session = session
        self._streams = streams
        self._connection = Untaken()
        self.crowded = False

    def count(self) -> None:
        """To be called when bytes were sent, or have gone. The stream with the fewest waiting bytes hears first of
        room: the others would take all of it again and again."""
        crowded = self._session.waiting > (ROOM_BYTES if self.crowded else CROWD_BYTES)
        if crowded is not self.crowded:
            self.crowded = crowded
            for number in sorted(self._streams, key=self._session.waiting_on):
                if (stream := self._streams.get(number)) is not None:
                    stream.tell_room()

    def too_long(self, transport: asyncio.Transport, now: float, *, blocked: bool) -> bool:
        """To be called now and then: whether the client takes nothing at all, or is gone. `blocked`: the connection
        takes no more of the bytes that were written."""
        if self._connection.is_gone(transport, now):
            return True
        if blocked or self._session.waiting or transport.is_closing():
            return self._connection.too_long(transport, now)
        self._connection.forget()
        return False

    def streams(self, now: float, *, blocked: bool) -> list[int]:
        """To be called after `too_long`: the streams of which the client takes nothing, while it could take bytes of
        them."""
        patience_s = CROWDED_S if self.crowded else UNTAKEN_S
        return self._session.untaken(now, patience_s, excused=blocked or self._connection.on_its_way)
