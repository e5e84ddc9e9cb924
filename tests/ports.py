"""Ports for programs that are told where to listen. Each process that runs tests has a range of its own, and the kernel
hands out none of it. So nobody takes a port between the moment when a test is given it and the moment when it is bound.
With one that was bound at 0 and let go, the next connection may.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import cache
from itertools import cycle

_FIRST, _ENDS = 20_000, 32_500
"""Below those that Linux gives to connections, and to who binds at 0: from 32,768 on. Above those that tests name."""
_EACH = 250  # ports for one process


def free_port(host: str = "127.0.0.1") -> int:
    """Free for streams and for datagrams, and another one each time."""
    return free_ports(1, host)


def free_ports(count: int, host: str = "127.0.0.1") -> int:
    """The first of so many in a row."""
    _, own = _range()
    while True:
        ports = [next(own) for _ in range(count)]
        if ports[-1] - ports[0] == count - 1 and _are_free(host, ports):
            return ports[0]


@cache
def _range() -> tuple[socket.socket, Iterator[int]]:
    """Held until the process ends by a name that one process can have."""
    for first in range(_FIRST, _ENDS, _EACH):
        held = socket.socket(socket.AF_UNIX)
        with suppress(OSError):
            held.bind(f"\0hawker-tests-ports-{first}")
            return held, cycle(range(first, first + _EACH))
        held.close()
    raise AssertionError(f"{(_ENDS - _FIRST) // _EACH} processes run tests on this host already")


def _are_free(host: str, ports: list[int]) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as stack, suppress(OSError):
        for port in ports:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                stack.enter_context(socket.socket(family, kind)).bind((host, port))
        return True
    return False
