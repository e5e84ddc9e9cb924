"""Ids for nodes that are on one host at once. The first four of their eight digits are in the names of what a node has
there: links, packet table, control group. Each process that runs tests has 256 such beginnings of its own, so none of
its nodes meets another's. By chance two would: a run has hundreds of nodes, several at once, and 65,536 beginnings.
"""

import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import cycle

from hawker.clock import SystemClock
from hawker.ids import NodeId

_EACH = 256  # beginnings for one process


def own_node_id() -> NodeId:
    """Another one each time."""
    _, own = _beginnings()
    return NodeId(f"{next(own):04x}{SystemClock().token_bytes(2).hex()}")


@cache
def _beginnings() -> tuple[socket.socket, Iterator[int]]:
    """Held until the process ends by a name that one process can have. Chosen by chance, since what an earlier run left
    on the host bears its ids."""
    (at,) = SystemClock().token_bytes(1)
    for first in ((at + number) % 256 * _EACH for number in range(256)):
        held = socket.socket(socket.AF_UNIX)
        with suppress(OSError):
            held.bind(f"\0hawker-tests-nodes-{first:04x}")
            return held, cycle(range(first, first + _EACH))
        held.close()
    raise AssertionError("256 processes run tests on this host already")
