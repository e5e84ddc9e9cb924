"""Who is connected to a listener: so many in all, so many from one address. Pure but for closing one.

When there is no room, one that rests makes room: of the same address, or of the one that has most. So a flood of
connections never keeps a newcomer of another address out, and descriptors are left for the node's own work.
"""

import os
import resource
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from itertools import chain
from typing import Protocol

from hawker.fair.turns import Share

_PRIVATE, _PRIVATE_SHIFT, _PRIVATE_NETWORK_SHIFT = 0xFDAA, 112, 80  # addresses of machines: a network is a /48
_NETWORK_BITS = 64  # of IPv6: whoever has one address of such a network has all of them
_ADDRESSES = 4096  # whose keys are remembered: each request asks for one
_DESCRIPTORS = "/proc/self/fd"
_COUNTED_FOR_S = 1.0
_FULL = 0.8


class Closable(Protocol):
    def give_up(self) -> None:
        """Close this connection at once."""


class ConnectionTable:
    """The connections of one listener, bounded in all and by address. `scarce` says whether the process is short of
    descriptors. Connections of an address that is `spared` are bounded by the total only."""

    def __init__(
        self,
        share: Share,
        scarce: Callable[[], bool],
        spared: Callable[[str], bool] = lambda address: False,
        key: Callable[[str], str] | None = None,
    ) -> None:
        """`key` maps an address to the key in whose share it counts, `key_of` by default."""
        self._share = share
        self._scarce = scarce
        self._spared = spared
        self._key = key or key_of
        self._keys: dict[Closable, str] = {}
        self._counts: dict[str, int] = {}  # of each key
        self._having: dict[int, dict[str, None]] = {}  # the keys that have so many, of those the first came first
        self._resting: dict[str, dict[Closable, None]] = {}  # the one that rests longest first

    def admit(self, connection: Closable, address: str) -> bool:
        """Admit a connection of `address`; False when there is no room. A resting connection may be closed to make
        room."""
        key = self._key(address)
        if not self._spared(address) and self._counts.get(key, 0) >= self._share.each and not self._close_resting(key):
            return False
        short = len(self._keys) >= self._share.total or self._scarce()
        if short and not self._close_resting(self._greediest(key)):
            return False
        self._keys[connection] = key
        self._resting.setdefault(key, {})[connection] = None
        self._count(key, 1)
        return True

    def work(self, connection: Closable) -> None:
        """Note that a request has come over this connection: it rests no more."""
        key = self._keys.get(connection)
        if key is not None:
            self._resting[key].pop(connection, None)

    def rest(self, connection: Closable) -> None:
        """Note that the requests of this connection are answered: it rests, and may be closed to make room."""
        key = self._keys.get(connection)
        if key is not None:
            self._resting[key][connection] = None

    def release(self, connection: Closable) -> None:
        key = self._keys.pop(connection, None)
        if key is None:
            return
        self._resting[key].pop(connection, None)
        self._count(key, -1)
        if key not in self._counts:
            del self._resting[key]

    def __len__(self) -> int:
        return len(self._keys)

    def _count(self, key: str, change: int) -> None:
        """Of so many keys the one that has most is to be found at once: when there is no room each newcomer asks."""
        before = self._counts.pop(key, 0)
        if before:
            del self._having[before][key]
            if not self._having[before]:
                del self._having[before]
        if after := before + change:
            self._counts[key] = after
            self._having.setdefault(after, {})[key] = None

    def _greediest(self, newcomer: str) -> str:
        """Of those with one that rests."""
        most_first = chain.from_iterable(self._having[count] for count in sorted(self._having, reverse=True))
        return next((key for key in most_first if self._resting[key]), newcomer)

    def _close_resting(self, key: str) -> bool:
        victim = next(iter(self._resting.get(key, ())), None)
        if victim is None:
            return False
        self.release(victim)
        victim.give_up()
        return True


@lru_cache(_ADDRESSES)
def key_of(address: str) -> str:
    """The key in whose share an address counts: the IPv4 address itself, or the /64 network of an IPv6 address."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(IPv6Address(int(found) >> _NETWORK_BITS << _NETWORK_BITS)) + f"/{_NETWORK_BITS}"
    return str(found)


def key_of_caller(address: str) -> str:
    """The key of a caller of the API: as `key_of`, but all machines of a private network (a /48) have one key together,
    however many there are."""
    try:
        found = IPv6Address(address.partition("%")[0])
    except ValueError:
        return key_of(address)
    if int(found) >> _PRIVATE_SHIFT != _PRIVATE:
        return key_of(address)
    return str(IPv6Address(int(found) >> _PRIVATE_NETWORK_SHIFT << _PRIVATE_NETWORK_SHIFT)) + "/48"


class DescriptorCount:
    """The number of descriptors that the process has open: counted now and then, and meanwhile never too few. `now` is
    a monotonic clock."""

    def __init__(
        self, now: Callable[[], float], most: int | None = None, count: Callable[[], int] | None = None
    ) -> None:
        self._now = now
        self._most = most or resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._count = count or _open_descriptors
        self._counted_at = float("-inf")
        self._used = 0

    def scarce(self) -> bool:
        """Whether one more descriptor would come out of the fifth that is for the node's own work. Asked once for each
        new connection."""
        now = self._now()
        if now >= self._counted_at + _COUNTED_FOR_S:
            self._counted_at, self._used = now, self._count()
        self._used += 1
        return self._used > self._most * _FULL


def _open_descriptors() -> int:
    """Kernels since 6.2 know it; the others list all, which takes 8 ms where there are 10,000."""
    return os.stat(_DESCRIPTORS).st_size or len(os.listdir(_DESCRIPTORS))
