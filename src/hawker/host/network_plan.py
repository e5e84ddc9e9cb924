"""Where a machine is plugged in, as a value."""

import re
from ipaddress import IPv4Address, IPv6Address

from hawker.host.address import private_ip
from hawker.ids import MachineId
from hawker.value_object import ValueObject


class NetworkPlan(ValueObject, frozen=True):
    """`network_id` has 32 bits; `ipv4` comes from the caller's pool and serves outbound traffic only; None: IPv6
    alone."""

    machine_id: MachineId
    network_id: int
    ipv4: IPv4Address | None = None

    @property
    def label(self) -> str:
        """What is written on the machine's link, so that whoever finds it knows whose it is."""
        return f"{self.machine_id} {self.network_id:08x} {self.ipv4 or '-'}"

    @property
    def ipv6(self) -> IPv6Address:
        return private_ip(self.network_id, self.machine_id)


_LABEL = re.compile(r"([0-9a-f]{14}) ([0-9a-f]{8}) (-|[0-9.]{7,15})")


def read_label(text: str | None) -> NetworkPlan | None:
    """None for what is no label of ours."""
    found = _LABEL.fullmatch(text or "")
    if found is None:
        return None
    try:
        ipv4 = None if found[3] == "-" else IPv4Address(found[3])
    except ValueError:
        return None
    return NetworkPlan(MachineId(found[1]), int(found[2], 16), ipv4)
