"""The host's connection to the rest of the world: its own address as the kernel's routes have it, for which nothing is
sent, the networks that it is in, and the name servers that it uses and its machines can use too.
"""

import re
import socket
from collections.abc import Callable, Iterator
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from hawker.deferred import deferred
from hawker.fair.threads import Pool, in_thread

if TYPE_CHECKING:
    from dns import exception, resolver
else:
    exception = deferred("dns.exception")
    resolver = deferred("dns.resolver")

OwnAddress: TypeAlias = Callable[[int], str | None]
"""A function from 4 or 6 to an address of the host, or None where the host has no way outwards."""

_FAR = {4: (socket.AF_INET, "192.0.2.1"), 6: (socket.AF_INET6, "2001:db8::1")}  # of nobody: RFC 5737 and 3849
_ANY_PORT = 9
_ANSWER_S = 5.0

_FILES = (Path("/run/systemd/resolve/resolv.conf"), Path("/etc/resolv.conf"))
"""Files with the host's name servers; the first holds the real servers where the second only names a stub on
loopback."""


def own_address(version: int) -> str | None:
    """The host's own address of IP version 4 or 6, None where it has no way outwards. Read anew at each call, since
    hosts move between networks."""
    family, far = _FAR[version]
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((far, _ANY_PORT))
            return str(probe.getsockname()[0])
    except OSError:
        return None


async def addresses_of(name: str) -> tuple[str, ...]:
    """The addresses of a host's name now, as this host's name servers have it; empty when it has none."""
    return await in_thread(Pool.NAMES, _look_up, name)


def _look_up(name: str) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(sorted({str(where[0]).partition("%")[0] for *_, where in found}))


async def records_of(name: str, kind: str) -> tuple[str, ...]:
    """The records of a name at this host's name servers: its texts (TXT), or the name that it is an alias of (CNAME).
    Empty when they say nothing, or do not answer."""
    return await in_thread(Pool.NAMES, lambda: ask_records(resolver.Resolver(), name, kind))


def ask_records(servers: "resolver.Resolver", name: str, kind: str) -> tuple[str, ...]:
    """The records as of `records_of`, from these servers."""
    try:
        found = servers.resolve(name, kind, search=False, lifetime=_ANSWER_S)
    except (exception.DNSException, OSError, ValueError):
        return ()
    return tuple(sorted(_words(each) for each in found))


def _words(record: Any) -> str:
    strings = getattr(record, "strings", None)
    if strings is None:
        return str(record.target.to_text(omit_final_dot=True))
    return b"".join(strings).decode("utf-8", "replace")


def nameservers() -> tuple[str, ...]:
    """The addresses of the host's name servers. Read anew at each call, since hosts move between networks. Empty when
    all are on loopback, which a machine's own loopback is not."""
    for file in _FILES:
        if file.exists():
            return parse_resolv_conf(file.read_text())
    return ()


@lru_cache(maxsize=8)
def parse_resolv_conf(text: str) -> tuple[str, ...]:
    """The servers in order, as resolv.conf(5) has them; scoped and loopback addresses left out."""
    words = [line.split() for line in text.splitlines()]
    named = [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"]
    return tuple(name for name in named if _usable(name))


def _usable(name: str) -> bool:
    try:
        address = ip_address(name)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_link_local or address.is_unspecified)


# The networks that the host is in: what its routes reach without a gateway. Links of machines and the mesh are left
# out, since what is behind them is told by the rules of their node.

_ROUTES = Path("/proc/thread-self/net")
_OURS = re.compile("hw[0-9a-f]{4}(n[a-z2-7]{7}|m)")
_UP, _GATEWAY, _REJECT, _ANYCAST, _LOCAL = 0x1, 0x2, 0x200, 0x100000, 0x80000000
_LOOPBACK = "lo"
_SHORTEST4, _SHORTEST6 = 8, 16
"""The shortest prefixes of a network, of IPv4 and IPv6. A shorter prefix is no network but a way out, such as the
halves of the world that a VPN routes to its device."""


def connected_networks(routes: Path = _ROUTES) -> tuple[IPv4Network | IPv6Network, ...]:
    """The networks that the host is in, in the calling thread's namespace. Read anew at each call."""
    four = sorted(set(_connected4((routes / "route").read_text())))
    return *four, *sorted(set(_connected6((routes / "ipv6_route").read_text())))


def _connected4(text: str) -> Iterator[IPv4Network]:
    """proc(5): interface, destination, gateway, flags, three counts, mask; numbers as the processor has them."""
    for line in text.splitlines()[1:]:
        interface, destination, _, flags, *_, mask, _, _, _ = line.split()
        prefix = int(mask, 16).bit_count()
        if _is_connected(interface, int(flags, 16)) and prefix >= _SHORTEST4:
            yield IPv4Network((socket.ntohl(int(destination, 16)), prefix))


def _connected6(text: str) -> Iterator[IPv6Network]:
    """Destination and its length, source and its length, next hop, metric, two counts, flags, interface."""
    for line in text.splitlines():
        destination, length, *_, flags, interface = line.split()
        network = IPv6Network((int(destination, 16), int(length, 16)))
        wide = network.prefixlen < _SHORTEST6 or network.is_multicast
        if _is_connected(interface, int(flags, 16)) and not wide:
            yield network


def _is_connected(interface: str, flags: int) -> bool:
    odd = flags & (_GATEWAY | _REJECT | _ANYCAST | _LOCAL)
    return bool(flags & _UP) and not odd and interface != _LOOPBACK and not _OURS.fullmatch(interface)
