"""The name servers that this host uses and that its machines can use too."""

from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path

_FILES = (Path("/run/systemd/resolve/resolv.conf"), Path("/etc/resolv.conf"))
"""The first holds the real servers where the second only names a stub on loopback."""


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
