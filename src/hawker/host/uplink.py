"""The host's connection to the rest of the world: its own address as the kernel's routes have it, for which nothing is
sent, and the name servers that it uses and its machines can use too.
"""

import socket
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import TypeAlias

OwnAddress: TypeAlias = Callable[[int], str | None]
"""From 4 or 6 to an address, or None where the host has no way outwards."""

_FAR = {4: (socket.AF_INET, "192.0.2.1"), 6: (socket.AF_INET6, "2001:db8::1")}  # of nobody: RFC 5737 and 3849
_ANY_PORT = 9

_FILES = (Path("/run/systemd/resolve/resolv.conf"), Path("/etc/resolv.conf"))
"""The first holds the real servers where the second only names a stub on loopback."""


def own_address(version: int) -> str | None:
    """Read anew at each call, since hosts move between networks."""
    family, far = _FAR[version]
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((far, _ANY_PORT))
            return str(probe.getsockname()[0])
    except OSError:
        return None


def nameservers() -> tuple[str, ...]:
    """Read anew at each call, since hosts move between networks. Empty when there is none but on loopback, which a
    machine's own loopback is not."""
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
