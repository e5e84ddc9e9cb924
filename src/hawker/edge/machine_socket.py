"""A flow of datagrams on its last stretch: the socket by which one machine of this host hears them and answers. What
comes first is sent again for a while where nothing listens in the machine yet.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from hawker.edge.refusal import Code, ProxyError
from hawker.edge.visits import Visit

MOST_BYTES = 65_535
IN_A_TURN = 64
"""The most datagrams that are read from one socket in a turn of the event loop."""
_KEPT, _KEPT_BYTES = 4, 4096
"""The number and the bytes of a flow's first datagrams that are kept: they wait for the machine, and go to it again
while nothing listens there yet."""
_FIRST_PAUSE_S, _TRIES = 0.01, 8  # of those, each twice as long after the one before


class MachineEnd(Protocol):
    """The machine's end of a flow, to which its datagrams go."""

    def send(self, data: bytes) -> bool:
        """Send a datagram to the machine. Returns whether there was room for it."""

    def close(self) -> None: ...


class FlowListener(Protocol):
    """The owner of a flow. It closes the machine's end when it is told that the flow has ended."""

    def hear(self, data: bytes) -> None:
        """Take a datagram that the machine sends."""

    def lose(self, why: ProxyError | None) -> None:
        """Note that the flow has ended; `why` is what the app's log may say of it."""


class FirstDatagrams:
    """The datagrams of a flow that no machine has answered: a few, and small ones."""

    def __init__(self) -> None:
        self._kept: list[bytes] = []

    def keep(self, data: bytes) -> bool:
        """Keep a datagram. Returns whether there was room for it."""
        fits = len(self._kept) < _KEPT and sum(map(len, self._kept)) + len(data) <= _KEPT_BYTES
        if fits:
            self._kept.append(data)
        return fits

    def __len__(self) -> int:
        return len(self._kept)

    def send(self, send: Callable[[bytes], object], most: int | None = None) -> None:
        for data in self._kept[:most]:
            send(data)

    def clear(self) -> None:
        self._kept.clear()


class MachineSocket:
    """A flow's socket to a machine of this host. Keeps `MachineEnd`. Raises `OSError` where the machine has no address
    any more."""

    def __init__(self, visit: Visit, listener: FlowListener) -> None:
        route, service = visit.gate.route, visit.target.service
        host = route.hosts[0] if route.hosts else ""
        self._visit = visit
        self._listener = listener
        self._first: FirstDatagrams | None = FirstDatagrams()  # None once it was answered
        self._unheard = 0  # of the first datagrams so many were sent while nothing listened
        self._tries = 0
        self._again: asyncio.TimerHandle | None = None
        self._closed = False
        self._socket = self._connected(host, service.internal_port or 0)
        asyncio.get_running_loop().add_reader(self._socket, self._hear)

    def _connected(self, host: str, port: int) -> socket.socket:
        """Raises `OSError`."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        made = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            made.connect((host, port))
        except OSError:
            made.close()
            raise
        return made

    @property
    def goes_on(self) -> bool:
        """Whether the machine has the same instance still, and runs."""
        return not self._closed and self._visit.gate.keeps(self._visit.target.machine.instance)

    def send(self, data: bytes) -> bool:
        if self._first is not None:
            self._first.keep(data)
        return self._pass_on(data)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._again is not None:
            self._again.cancel()
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def _pass_on(self, data: bytes) -> bool:
        if self._closed:
            return True
        try:
            self._socket.send(data)
        except BlockingIOError:
            return False
        except ConnectionRefusedError:  # the answer to one before: this one was not sent
            self._refused()
        except OSError:
            self._listener.lose(None)
        return True

    def _hear(self) -> None:
        for _ in range(IN_A_TURN):
            if self._closed:
                return
            try:
                data = self._socket.recv(MOST_BYTES)
            except BlockingIOError:
                return
            except ConnectionRefusedError:
                self._refused()
                return
            except OSError:
                self._listener.lose(None)
                return
            if self._first is not None:
                self._answered(self._first)
            self._listener.hear(data)

    def _answered(self, first: FirstDatagrams) -> None:
        """Whoever came after those that nobody has heard may have been heard first: they go to it once more."""
        self._first = None
        if self._again is not None:
            self._again.cancel()
            self._again = None
            first.send(self._pass_on, self._unheard)

    def _refused(self) -> None:
        """Nothing listens there. In a machine that has just begun it may yet; where it did, it does no more."""
        if self._first is not None:
            self._unheard = len(self._first)
        if self._again is not None:
            return
        if self._first is None or self._tries >= _TRIES:
            port, machine = self._visit.target.service.internal_port, self._visit.gate.route.id
            known = f"in machine {machine} nothing listens at UDP port {port} of fly-global-services, or 0.0.0.0"
            self._listener.lose(ProxyError(Code.PC01, known=known))
            return
        self._again = asyncio.get_running_loop().call_later(_FIRST_PAUSE_S * 2.0**self._tries, self._send_first)
        self._tries += 1

    def _send_first(self) -> None:
        self._again = None
        if self._first is not None:
            self._first.send(self._pass_on)
