"""What a daemon and the systemd that started it say to each other: the listening socket that is handed over, and that
we are ready, alive or stopping. The protocols of sd_listen_fds(3) and sd_notify(3), without a library.

Invariant: the variables are gone once they are read, and no descriptor is inheritable, so no child can mistake them.
"""

import os
import socket
from collections.abc import MutableMapping
from math import inf
from typing import Self

from hawker.clock import Clock
from hawker.errors import CannotStart
from hawker.value_object import ValueObject

_FIRST = 3  # after the standard streams
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_SOCKET_WANTED = "hawker.socket must have exactly one ListenStream=ADDRESS:PORT"


def handed_over(environ: MutableMapping[str, str], pid: int) -> socket.socket | None:
    """The listening TCP socket that systemd holds for us; None when we were not started through one. Raises
    `CannotStart` when something else was handed over."""
    meant_for, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    names = environ.pop("LISTEN_FDNAMES", "")
    if meant_for != str(pid) or not count.isdecimal() or count == "0":
        return None
    numbers = range(_FIRST, _FIRST + int(count))
    if len(numbers) > 1:
        raise CannotStart(f"systemd handed over {count} sockets ({names}), and a node takes one: {_SOCKET_WANTED}")
    return _listener(numbers[0])


def _listener(number: int) -> socket.socket:
    try:
        os.set_inheritable(number, False)
        listener = socket.socket(fileno=number)
    except OSError as error:
        raise CannotStart(f"descriptor {number}, which systemd handed over, is no socket: {_SOCKET_WANTED}") from error
    if listener.family not in _INTERNET or listener.type != socket.SOCK_STREAM or not _listens(listener):
        listener.close()
        raise CannotStart(f"what systemd handed over is no listening TCP socket: {_SOCKET_WANTED}")
    listener.setblocking(False)
    return listener


def _listens(listener: socket.socket) -> bool:
    return listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1


class Notifier(ValueObject, frozen=True):
    """Tells systemd that the node is ready, alive or stopping; sends nothing when `address` is empty. Every message is
    one datagram that is never waited for: a service manager that does not listen must not stop a node. `watchdog_s` is
    how many seconds of silence systemd bears."""

    address: str = ""
    watchdog_s: float = inf

    @classmethod
    def of(cls, environ: MutableMapping[str, str], pid: int) -> Self:
        address = environ.pop("NOTIFY_SOCKET", "")
        limit_us, meant_for = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", str(pid))
        watched = address and limit_us.isdecimal() and int(limit_us) > 0 and meant_for == str(pid)
        return cls(address, int(limit_us) / 1e6 if watched else inf)

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=stopping; machines go on running")

    async def keep_alive(self, clock: Clock) -> None:
        """Tell systemd again and again that we are not stuck, for as long as this runs, and the event loop with it.
        Returns at once when nobody watches."""
        while self.watchdog_s < inf:
            self._send("WATCHDOG=1")
            await clock.sleep(self.watchdog_s / 3)

    def _send(self, message: str) -> None:
        if not self.address:
            return
        path = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as endpoint:
            endpoint.setblocking(False)
            try:
                endpoint.sendto(message.encode(), path)
            except OSError:  # it is gone, or too busy to hear
                return
