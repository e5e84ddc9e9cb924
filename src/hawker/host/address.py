"""Addresses and interface names as pure functions of ids, so that any host computes the same ones.

A private network is fdaa:<32-bit network id>::/48; a machine in it owns a /112 made of its id. Neither says on which
host the machine runs. Interface names begin with `hw` and four characters of the node's id.
"""

import base64
from ipaddress import IPv4Address, IPv6Address, IPv6Network

from hawker.ids import MachineId, NodeId

GATEWAY4 = IPv4Address("169.254.1.1")
"""The machines' IPv4 gateway, the same in every network and never seen outside of it."""

PRIVATE = IPv6Network("fdaa::/16")
"""The range of all private networks."""

_PRIVATE = int(PRIVATE.network_address)
_HOST_PART = 2
_PEER_PART = 2 << 16
_RESOLVER_PART = 3
_GATEWAY_PART = 1


def network_prefix(network_id: int) -> IPv6Network:
    """The /48 of a private network. `network_id` has 32 bits."""
    assert 0 <= network_id < 1 << 32, "a network id has 32 bits"
    return IPv6Network((_PRIVATE | network_id << 80, 48))


def private_ip(network_id: int, machine_id: MachineId) -> IPv6Address:
    """The machine's address: 48 bits of network, 56 of machine id, 8 zero, then 16 bits that a machine may use as it
    likes; ours is 2."""
    host = int(machine_id, 16) << 24 | _HOST_PART
    return network_prefix(network_id)[host]


def machine_prefix(network_id: int, machine_id: MachineId) -> IPv6Network:
    """The /112 that is a machine's own."""
    return IPv6Network((private_ip(network_id, machine_id), 112), strict=False)


def peer_ip(network_id: int, peer_id: MachineId) -> IPv6Address:
    """The address of a computer that comes in over WireGuard: as a machine's, but that bits 16 to 23 are 2."""
    return network_prefix(network_id)[int(peer_id, 16) << 24 | _PEER_PART | _HOST_PART]


def peer_prefix(network_id: int, peer_id: MachineId) -> IPv6Network:
    """The /112 that leads to the computer of this peer id."""
    return IPv6Network((peer_ip(network_id, peer_id), 112), strict=False)


def network_resolver(network_id: int) -> IPv6Address:
    """The resolver's address for computers that come in over WireGuard: they may only send to addresses in their
    network."""
    return network_prefix(network_id)[_RESOLVER_PART]


def gateway(network_id: int) -> IPv6Address:
    """The host's own address in the network."""
    return network_prefix(network_id)[_GATEWAY_PART]


def interface_prefix(node_id: NodeId) -> str:
    """The first characters of the name of every interface of a node."""
    return f"hw{node_id[:4]}"


def mesh_name(node_id: NodeId) -> str:
    """The name of the node's end of the tunnels to other hosts."""
    return f"{interface_prefix(node_id)}m"


def peers_name(node_id: NodeId) -> str:
    """The name of the node's end of people's tunnels."""
    return f"{interface_prefix(node_id)}p"


def bridge_prefix(node_id: NodeId) -> str:
    return f"{interface_prefix(node_id)}n"


def bridge_name(node_id: NodeId, network_id: int) -> str:
    """The name of the network's bridge: 14 of the 15 characters that the kernel allows; seven of base32 hold the whole
    network id."""
    encoded = base64.b32encode(network_id.to_bytes(4, "big")).decode().rstrip("=").lower()
    return bridge_prefix(node_id) + encoded


def network_of(bridge: str) -> int:
    """The network id that `bridge_name` wrote into the bridge's name."""
    encoded = bridge[len(bridge_prefix(NodeId("0000"))) :].upper()
    return int.from_bytes(base64.b32decode(encoded + "=" * (-len(encoded) % 8)), "big")


def veth_name(node_id: NodeId, machine_id: MachineId) -> str:
    """The name of the host's end of a machine's link: for people to read. Two machines may get the same name, so
    nothing looks a machine up by it."""
    return f"{interface_prefix(node_id)}v{machine_id[:8]}"


def spare_veth_name(node_id: NodeId) -> str:
    """A name for the rare case that the readable one is taken; the kernel fills in the number."""
    return f"{interface_prefix(node_id)}w%d"


def bridge_mac(network_id: int) -> str:
    """The bridge's link address. Fixed, because a bridge without one takes that of a port and changes it when the port
    goes. The same on every host: a suspended machine that goes on at another host still believes that its gateway has
    this address."""
    return _mac(bytes([2, 0]) + network_id.to_bytes(4, "big"))


def machine_mac(machine_id: MachineId) -> str:
    return _own_mac(6, machine_id)


def machine_link_local(machine_id: MachineId) -> IPv6Address:
    return _link_local(machine_mac(machine_id))


def bridge_link_local(network_id: int) -> IPv6Address:
    return _link_local(bridge_mac(network_id))


def uplink_mac(machine_id: MachineId) -> str:
    """The link address of the devices between a guest and the host, which may not be taken for either: the end of the
    link in the machine's namespace, the bridge there, and the tap."""
    return _own_mac(0x0A, machine_id)


def inner_mac(machine_id: MachineId) -> str:
    return _own_mac(0x0E, machine_id)


def tap_mac(machine_id: MachineId) -> str:
    return _own_mac(0x12, machine_id)


def _own_mac(first: int, machine_id: MachineId) -> str:
    return _mac(bytes([first]) + bytes.fromhex(machine_id)[-5:])


def _mac(octets: bytes) -> str:
    return ":".join(f"{octet:02x}" for octet in octets)


def _link_local(mac: str) -> IPv6Address:
    """What the kernel makes of the link address by itself: the modified EUI-64 (RFC 4291, appendix A)."""
    octets = bytes.fromhex(mac.replace(":", ""))
    return IPv6Address(b"\xfe\x80" + bytes(6) + bytes([octets[0] ^ 2]) + octets[1:3] + b"\xff\xfe" + octets[3:])
