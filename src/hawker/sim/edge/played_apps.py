"""The apps of every run: their ports, networks and addresses, and their machines with their hosts. The app of a machine
is its name without its number.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from hawker.ids import AppName
from hawker.record.app import AppRecord, IpRecord

IDLE_S = 15.0
HIDDEN = "hidden"
"""An app with services and without any address: whoever names it gets another app, or nobody."""
PORTS = {"steady": 8001, "lazy": 8002, "tight": 8003, "least": 8004, "other": 8005, "herd": 8006}
PORTS |= {"spread": 8007, "named": 8008, HIDDEN: 8008}
NETWORK, OTHER_NETWORK = 7, 9
"""The second one is that of `other` alone, whose machine is on the third host, and which has an address in either."""
_SHARED = IpRecord(
    id="1", ip="198.51.100.1", type="shared_v4", region="global", service_name="", shared=True, created_at=0.0
)

MACHINES: dict[str, tuple[int, dict[str, Any]]] = {
    "steady1": (1, {}),
    "steady2": (2, {}),
    "steady3": (3, {}),
    "lazy1": (1, {"soft": 2, "hard": 4, "autostop": "stop", "idle_s": IDLE_S}),
    "lazy2": (1, {"soft": 2, "hard": 4, "autostop": "suspend", "idle_s": IDLE_S}),
    "lazy3": (2, {"soft": 2, "hard": 4, "autostop": "stop", "idle_s": IDLE_S}),
    "tight1": (1, {"soft": 1, "hard": 2, "kind": "requests"}),
    "tight3": (3, {"soft": 1, "hard": 2, "kind": "requests"}),
    "least1": (2, {"soft": 2, "autostop": "stop", "least": 1, "idle_s": IDLE_S}),
    "least2": (2, {"soft": 2, "autostop": "stop", "least": 1, "idle_s": IDLE_S}),
    "other1": (3, {}),
    **{f"herd{number}": (3, {"soft": 1, "hard": 2, "autostop": "stop", "idle_s": IDLE_S}) for number in range(1, 6)},
    "spread1": (1, {"autostop": "stop", "least": 1, "idle_s": IDLE_S}),
    "spread3": (3, {"autostop": "stop", "least": 1, "idle_s": IDLE_S}),
    "named2": (2, {"publish": ""}),
    "hidden2": (2, {"publish": ""}),
}
"""The host of each, and what its config says. `named` has a public address that it shares, so its name is what leads to
it."""
DATAGRAM_PORTS = {"talk": 8101, "quiet": 8102, "calls": 8103}
"""Of apps that speak UDP, in the runs that have them."""
DATAGRAM_MACHINES: dict[str, tuple[int, dict[str, Any]]] = {
    "talk1": (1, {"udp": True}),
    "talk3": (3, {"udp": True}),
    "quiet1": (1, {"udp": True, "soft": 4, "autostop": "stop", "idle_s": IDLE_S}),
    "quiet2": (2, {"udp": True, "soft": 4, "autostop": "suspend", "idle_s": IDLE_S}),
    "calls2": (2, {"udp": True, "soft": 1, "hard": 2}),
    "calls3": (3, {"udp": True, "soft": 1, "hard": 2}),
}
"""As in `MACHINES`."""


def app_records() -> Iterator[AppRecord]:
    for number, name in enumerate(PORTS, 1):
        network = OTHER_NETWORK if name == "other" else NETWORK
        yield AppRecord(
            id=name, number=number, name=AppName(name), org="org", network="", network_id=network, created_at=0.0
        )


def ip_records() -> Iterator[tuple[AppName, IpRecord]]:
    """A name leads to one app; each that is asked for has a private address, and one of them two."""
    yield AppName("named"), _SHARED
    for name in PORTS:
        if name != HIDDEN:
            yield AppName(name), private_ip(name, NETWORK)
    yield AppName("other"), private_ip("other", OTHER_NETWORK)


def private_ip(app: str, network: int) -> IpRecord:
    ip = f"fdaa:0:{network}::1:{list(PORTS).index(app)}"
    return replace(_SHARED, id=ip, ip=ip, type="private_v6", shared=False)
