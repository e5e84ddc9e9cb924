"""The host's own address towards the rest of the world, as the kernel's routes have it. Nothing is sent."""

import socket
from collections.abc import Callable
from typing import TypeAlias

Outward: TypeAlias = Callable[[int], str | None]
"""From 4 or 6 to an address, or None where the host has no way outwards."""

_FAR = {4: (socket.AF_INET, "192.0.2.1"), 6: (socket.AF_INET6, "2001:db8::1")}  # of nobody: RFC 5737 and 3849
_ANY_PORT = 9


def own_address(version: int) -> str | None:
    """Read anew at each call, since hosts move between networks."""
    family, far = _FAR[version]
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((far, _ANY_PORT))
            return str(probe.getsockname()[0])
    except OSError:
        return None
