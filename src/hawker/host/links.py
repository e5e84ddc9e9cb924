"""Requests to the kernel about interfaces, addresses and routes (rtnetlink(7)), sent by a `NetlinkSocket`.

Each is idempotent where the kernel allows it: what is there already, or gone already, is success. The few messages are
written here: pyroute2, which has them all, took a fifth of a daemon's boot to import.
"""

import errno
import socket
import struct
from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address
from typing import TypeAlias

from hawker.host.netlink import CREATE, DUMP, EXCLUSIVE, REPLACE, NetlinkRequest, NetlinkSocket
from hawker.value_object import ValueObject

Interface: TypeAlias = IPv4Interface | IPv6Interface

_NEWLINK, _DELLINK, _GETLINK = 16, 17, 18
_NEWADDR, _DELADDR, _GETADDR, _NEWROUTE, _DELROUTE = 20, 21, 22, 24, 25
_NEWNEIGH = 28
_IFF_UP = 1
_NO_DAD = 0x02
_ON_LINK = 4
_SCOPE_LINK = 253
_TABLE_MAIN, _PROTO_STATIC, _PROTO_ANY, _UNICAST = 254, 4, 0, 1
_AF_BRIDGE = 7
_NUD_STATIC = 0x42  # known for good, but not the host's own: NUD_NOARP | NUD_REACHABLE
_NTF_MASTER = 0x04
_KEPT = 1024  # encoding takes longer than the kernel's work, and each start of a machine says the same

# The kernel's structures, linux/rtnetlink.h, if_addr.h and neighbour.h, and the numbers of their attributes.
_IFINFOMSG = struct.Struct("=BxHiII")  # family, type, index, flags, change
_IFADDRMSG = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, index
_RTMSG = struct.Struct("=BBBBBBBBI")  # family, both prefix lengths, tos, table, protocol, scope, type, flags
_NDMSG = struct.Struct("=B3xiHBB")  # family, index, state, flags, type
_ATTRIBUTE = struct.Struct("=HH")  # length with this header, number
_NUMBER_MASK = 0x3FFF  # above are flags

_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_LINK, _IFLA_MASTER = 1, 3, 4, 5, 10
_IFLA_LINKINFO, _IFLA_IFALIAS, _IFLA_NET_NS_FD = 18, 20, 28
_INFO_KIND, _INFO_DATA, _INFO_SLAVE_KIND, _INFO_SLAVE_DATA = 1, 2, 4, 5
_BR_MCAST_SNOOPING, _BR_NF_CALL_IPTABLES, _BR_NF_CALL_IP6TABLES = 23, 36, 37
_BRPORT_LEARNING, _BRPORT_UNICAST_FLOOD = 8, 9
_VETH_INFO_PEER = 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_METRICS = 1, 4, 5, 8
_RTAX_MTU = 2
_NDA_LLADDR = 2


class HostLink(ValueObject, frozen=True):
    """An interface of the host. `master` is the index of the bridge it is a port of; `label` is the text written on it;
    `kind` is the kernel's name of its kind."""

    index: int
    """The kernel's number of the link, 1 or more; another link gets another number."""
    name: str
    """The link's name, at most 15 bytes, unique on the host."""
    master: int | None
    label: str | None = None
    kind: str = ""


WIREGUARD = "wireguard"
"""The kind of link that `add_wireguard` makes."""


class VethPeer(ValueObject, frozen=True):
    """The far end of a veth pair; `netns` is a file descriptor of the namespace that it is made in."""

    name: str
    """The name in its namespace, at most 15 bytes."""
    mac: str
    """The link address: six hexadecimal bytes with colons."""
    netns: int


def add_bridge(name: str, mac: str) -> NetlinkRequest:
    """Add a bridge without multicast snooping: nobody here sends the queries it relies on, and neighbour discovery must
    work."""
    about = [_text(_IFLA_IFNAME, name), _mac(_IFLA_ADDRESS, mac), _bridge_info(_byte(_BR_MCAST_SNOOPING, 0))]
    return _link_request(_NEWLINK, *about, up=True, flags=CREATE | EXCLUSIVE, tolerated=errno.EEXIST)


def add_wireguard(name: str) -> NetlinkRequest:
    """Add an end of tunnels that the kernel itself makes. A kernel without WireGuard refuses it with EOPNOTSUPP."""
    about = [_text(_IFLA_IFNAME, name), _nested(_IFLA_LINKINFO, _text(_INFO_KIND, WIREGUARD))]
    return _link_request(_NEWLINK, *about, flags=CREATE | EXCLUSIVE)


def set_mtu(index: int, mtu: int) -> NetlinkRequest:
    return _link_request(_NEWLINK, _number(_IFLA_MTU, mtu), index=index, up=True)


def show_packets(index: int) -> NetlinkRequest:
    """Let the packet rules see packets that bridge `index` passes from port to port (`br_netfilter`)."""
    info = _bridge_info(_byte(_BR_NF_CALL_IPTABLES, 1), _byte(_BR_NF_CALL_IP6TABLES, 1))
    return _link_request(_NEWLINK, info, index=index, tolerated=errno.ENODEV)


def add_veth(name: str, *, master: int, peer: VethPeer) -> NetlinkRequest:
    """Add a pair of links in one step: `name` here, up and in the bridge `master`; `peer` in its namespace. A `%d` in
    `name` becomes the first free number."""
    about_peer = [_text(_IFLA_IFNAME, peer.name), _mac(_IFLA_ADDRESS, peer.mac), _number(_IFLA_NET_NS_FD, peer.netns)]
    other = _attribute(_VETH_INFO_PEER, _IFINFOMSG.pack(0, 0, 0, 0, 0) + b"".join(about_peer))
    info = _nested(_IFLA_LINKINFO, _text(_INFO_KIND, "veth"), _nested(_INFO_DATA, other))
    about = [_text(_IFLA_IFNAME, name), _number(_IFLA_MASTER, master), info]
    return _link_request(_NEWLINK, *about, up=True, flags=CREATE | EXCLUSIVE)


@lru_cache(_KEPT)
def link_up(index: int) -> NetlinkRequest:
    return _link_request(_NEWLINK, index=index, up=True)


def join_bridge(index: int, bridge: int) -> NetlinkRequest:
    """Make a link a port of `bridge`, and up."""
    return _link_request(_NEWLINK, _number(_IFLA_MASTER, bridge), index=index, up=True)


def learn_nothing(index: int, *, flood: bool = True) -> NetlinkRequest:
    """Let the bridge of port `index` keep no table of addresses behind this port; without `flood`, send there no frames
    for an address whose port it does not know."""
    data = _nested(_INFO_SLAVE_DATA, _byte(_BRPORT_LEARNING, 0), _byte(_BRPORT_UNICAST_FLOOD, int(flood)))
    return _link_request(_NEWLINK, _nested(_IFLA_LINKINFO, _text(_INFO_SLAVE_KIND, "bridge"), data), index=index)


def stand_behind(index: int, mac: str) -> NetlinkRequest:
    """Tell the bridge of port `index` that frames for `mac` go to this port, whatever the bridge hears."""
    head = _NDMSG.pack(_AF_BRIDGE, index, _NUD_STATIC, _NTF_MASTER, 0)
    return NetlinkRequest(_NEWNEIGH, head + _mac(_NDA_LLADDR, mac), CREATE | REPLACE)


def write_label(index: int, label: str) -> NetlinkRequest:
    """Write at most 255 characters on a link; they stay on it and are shown with it (`ip link`: alias)."""
    return _link_request(_NEWLINK, _text(_IFLA_IFALIAS, label), index=index)


def set_mac(index: int, mac: str) -> NetlinkRequest:
    return _link_request(_NEWLINK, _mac(_IFLA_ADDRESS, mac), index=index)


def delete_link(name: str) -> NetlinkRequest:
    return _link_request(_DELLINK, _text(_IFLA_IFNAME, name), tolerated=errno.ENODEV)


def delete_link_by_index(index: int) -> NetlinkRequest:
    return _link_request(_DELLINK, index=index, tolerated=errno.ENODEV)


@lru_cache(_KEPT)
def add_address(index: int, address: Interface) -> NetlinkRequest:
    """Add an address to link `index`. It is usable at once: no duplicate address detection."""
    flags = _NO_DAD if address.version == 6 else 0
    scope = _SCOPE_LINK if address.version == 4 and address.is_link_local else 0
    head = _IFADDRMSG.pack(_family(address), address.network.prefixlen, flags, scope, index)
    body = head + _address(_IFA_LOCAL, address.ip) + _address(_IFA_ADDRESS, address.ip)
    return NetlinkRequest(_NEWADDR, body, CREATE | REPLACE)


def delete_address(index: int, address: Interface) -> NetlinkRequest:
    head = _IFADDRMSG.pack(_family(address), address.network.prefixlen, 0, 0, index)
    body = head + _address(_IFA_LOCAL, address.ip) + _address(_IFA_ADDRESS, address.ip)
    return NetlinkRequest(_DELADDR, body, 0, frozenset({errno.EADDRNOTAVAIL, errno.ENODEV}))


@lru_cache(_KEPT)
def add_route(
    target: Interface, index: int, *, via: str | None = None, mtu: int | None = None, alone: bool = False
) -> NetlinkRequest:
    """Add a route to the network of `target` (prefix length 0: the default route) out of link `index`; `via` is a
    neighbour that need not be in a network of the link; packets have at most `mtu` bytes. `alone`: refused with EEXIST
    where there is such a route."""
    body = _route(target, index, flags=0 if via is None else _ON_LINK)
    if via is not None:
        body += _address(_RTA_GATEWAY, ip_address(via))
    if mtu is not None:
        body += _nested(_RTA_METRICS, _number(_RTAX_MTU, mtu))
    return NetlinkRequest(_NEWROUTE, body, CREATE | (EXCLUSIVE if alone else REPLACE))


def delete_route(target: Interface, index: int) -> NetlinkRequest:
    """Delete the route, whether we or another program put it there."""
    return NetlinkRequest(_DELROUTE, _route(target, index, _PROTO_ANY), 0, frozenset({errno.ESRCH}))


def links(netlink: NetlinkSocket) -> list[HostLink]:
    """Every interface of the socket's namespace."""
    return [_read_link(body) for body in netlink.dump(_link_request(_GETLINK, flags=DUMP, ack=False))]


def link(netlink: NetlinkSocket, index: int) -> HostLink:
    """The interface with this index. Raises `OSError` with ENODEV when it is gone."""
    return _read_link(netlink.ask(_link_request(_GETLINK, index=index, ack=False)))


def other_end_of(netlink: NetlinkSocket, index: int) -> int | None:
    """The index of a veth's far end, whatever namespace that end is in."""
    body = netlink.ask(_link_request(_GETLINK, index=index, ack=False))
    return _number_in(dict(_attributes(body)), _IFLA_LINK)


def addresses(netlink: NetlinkSocket) -> dict[IPv4Address | IPv6Address, int]:
    """All addresses in the socket's namespace, each with the index of its interface."""
    there = {}
    for body in netlink.dump(NetlinkRequest(_GETADDR, _IFADDRMSG.pack(0, 0, 0, 0, 0), DUMP, ack=False)):
        *_, index = _IFADDRMSG.unpack_from(body)
        found = dict(_attributes(body, _IFADDRMSG.size))
        packed = found.get(_IFA_LOCAL) or found.get(_IFA_ADDRESS)
        if packed:
            there[ip_address(packed)] = int(index)
    return there


def index_of(name: str) -> int | None:
    """The index of an interface in the calling thread's namespace; None when there is no such interface."""
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return None


# Messages to bytes.


def _link_request(
    kind: int,
    *attributes: bytes,
    index: int = 0,
    up: bool = False,
    flags: int = 0,
    tolerated: int | None = None,
    ack: bool = True,
) -> NetlinkRequest:
    state = _IFF_UP if up else 0
    body = _IFINFOMSG.pack(0, 0, index, state, state) + b"".join(attributes)
    return NetlinkRequest(kind, body, flags, frozenset() if tolerated is None else frozenset({tolerated}), ack)


def _route(target: Interface, index: int, put_by: int = _PROTO_STATIC, *, flags: int = 0) -> bytes:
    network = target.network
    scope = _SCOPE_LINK if target.version == 4 and network.prefixlen == 32 else 0
    about = (_family(target), network.prefixlen, 0, 0, _TABLE_MAIN, put_by, scope, _UNICAST, flags)
    to = _address(_RTA_DST, network.network_address) if network.prefixlen else b""
    return _RTMSG.pack(*about) + _number(_RTA_OIF, index) + to


def _family(address: Interface) -> int:
    return int(socket.AF_INET6 if address.version == 6 else socket.AF_INET)


def _bridge_info(*options: bytes) -> bytes:
    return _nested(_IFLA_LINKINFO, _text(_INFO_KIND, "bridge"), _nested(_INFO_DATA, *options))


def _attribute(number: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), number) + value + bytes(-len(value) % 4)


def _nested(number: int, *attributes: bytes) -> bytes:
    return _attribute(number, b"".join(attributes))


def _text(number: int, value: str) -> bytes:
    return _attribute(number, value.encode() + b"\0")


def _byte(number: int, value: int) -> bytes:
    return _attribute(number, bytes((value,)))


def _number(number: int, value: int) -> bytes:
    return _attribute(number, struct.pack("=I", value))


def _mac(number: int, value: str) -> bytes:
    return _attribute(number, bytes.fromhex(value.replace(":", "")))


def _address(number: int, value: IPv4Address | IPv6Address) -> bytes:
    return _attribute(number, value.packed)


# And back.


def _read_link(body: bytes) -> HostLink:
    _, _, index, _, _ = _IFINFOMSG.unpack_from(body)
    found = dict(_attributes(body))
    about = dict(_attributes(found.get(_IFLA_LINKINFO, b""), 0))
    return HostLink(
        index=index,
        name=_text_in(found, _IFLA_IFNAME) or "",
        master=_number_in(found, _IFLA_MASTER),
        label=_text_in(found, _IFLA_IFALIAS),
        kind=_text_in(about, _INFO_KIND) or "",
    )


def _attributes(body: bytes, at: int = _IFINFOMSG.size) -> Iterator[tuple[int, bytes]]:
    """Of a message about a link, or of one of its attributes (`at` 0). What is cut off is not there."""
    while at + _ATTRIBUTE.size <= len(body):
        length, number = _ATTRIBUTE.unpack_from(body, at)
        if length < _ATTRIBUTE.size or at + length > len(body):
            return
        yield number & _NUMBER_MASK, body[at + _ATTRIBUTE.size : at + length]
        at += length + -length % 4


def _text_in(found: dict[int, bytes], number: int) -> str | None:
    value = found.get(number)
    return None if value is None else value.rstrip(b"\0").decode(errors="replace")


def _number_in(found: dict[int, bytes], number: int) -> int | None:
    value = found.get(number)
    return None if value is None else int(struct.unpack("=I", value)[0])
