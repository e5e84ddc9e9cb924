"""The node's pool of IPv4 addresses, which machines use for traffic outwards only."""

from ipaddress import IPv4Network

from hawker.errors import Conflict
from hawker.ids import MachineId
from hawker.record.machine import BY_IPV4
from hawker.store.contract import Reader

_RESERVED = 2  # the network's own address and its first host


def free_ipv4(reader: Reader, pool: IPv4Network, machine_id: MachineId) -> str:
    """A free address, searched from a place that the machine's id gives, so that it is found at once in a pool that is
    not nearly full. Raises `Conflict` when it is."""
    size = pool.num_addresses - _RESERVED - 1
    if reader.count(BY_IPV4) >= size:
        raise Conflict("insufficient IPs available to fulfill request")
    first = int(machine_id, 16) % size
    for step in range(size):
        address = str(pool[_RESERVED + (first + step) % size])
        if reader.get(BY_IPV4, address) is None:
            return address
    raise AssertionError("a pool with a free address has one")
