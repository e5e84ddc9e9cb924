"""Requests to the kernel about interfaces, addresses and routes; encoded by pyroute2, sent by a `NetlinkSocket`.

Each is idempotent where the kernel allows it: what is there already, or gone already, is success.
"""

import errno
import socket
import struct
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Interface, IPv6Interface
from typing import Any, TypeAlias

from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from hawker.host.netlink import CREATE, DUMP, EXCLUSIVE, REPLACE, NetlinkRequest, NetlinkSocket

Interface: TypeAlias = IPv4Interface | IPv6Interface

_NEWLINK, _DELLINK, _GETLINK = 16, 17, 18
_NEWADDR, _NEWROUTE, _DELROUTE = 20, 24, 25
_IFF_UP = 1
_NO_DAD = 0x02
_ON_LINK = 4
_SCOPE_LINK = 253
_TABLE_MAIN, _PROTO_STATIC, _UNICAST = 254, 4, 1
_HEADER_SIZE = 16
_NEWNEIGH = 28
_AF_BRIDGE = 7
_NUD_STATIC = 0x42  # known for good, but not the host's own: NUD_NOARP | NUD_REACHABLE
_NTF_MASTER = 0x04
_KEPT = 1024  # encoding takes longer than the kernel's work, and each start of a machine says the same


@dataclass(frozen=True, slots=True)
class HostLink:
    """`master` is the index of the bridge it is a port of; `label` is what somebody wrote on it."""

    index: int
    name: str
    master: int | None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class VethPeer:
    """The far end of a veth pair; `netns` is a file descriptor of the namespace that it is made in."""

    name: str
    mac: str
    netns: int


def add_bridge(name: str, mac: str) -> NetlinkRequest:
    """Without multicast snooping: nobody here sends the queries it relies on, and neighbour discovery must work."""
    options = {"attrs": [("IFLA_BR_MCAST_SNOOPING", 0)]}
    info = {"attrs": [("IFLA_INFO_KIND", "bridge"), ("IFLA_INFO_DATA", options)]}
    message = _up(ifinfmsg())
    message["attrs"] = [("IFLA_IFNAME", name), ("IFLA_ADDRESS", mac), ("IFLA_LINKINFO", info)]
    return _request(_NEWLINK, message, CREATE | EXCLUSIVE, errno.EEXIST)


def show_packets(index: int) -> NetlinkRequest:
    """Let the packet rules see what bridge `index` passes from port to port (`br_netfilter`)."""
    options = {"attrs": [("IFLA_BR_NF_CALL_IPTABLES", 1), ("IFLA_BR_NF_CALL_IP6TABLES", 1)]}
    message = ifinfmsg()
    message["index"] = index
    message["attrs"] = [("IFLA_LINKINFO", {"attrs": [("IFLA_INFO_KIND", "bridge"), ("IFLA_INFO_DATA", options)]})]
    return _request(_NEWLINK, message, 0, errno.ENODEV)


def add_veth(name: str, *, master: int, peer: VethPeer) -> NetlinkRequest:
    """A pair in one step: `name` here, up and in the bridge `master`; `peer` in its namespace. A `%d` in `name` becomes
    the first free number."""
    other = {"attrs": [("IFLA_IFNAME", peer.name), ("IFLA_ADDRESS", peer.mac), ("IFLA_NET_NS_FD", peer.netns)]}
    info = {"attrs": [("IFLA_INFO_KIND", "veth"), ("IFLA_INFO_DATA", {"attrs": [("VETH_INFO_PEER", other)]})]}
    message = _up(ifinfmsg())
    message["attrs"] = [("IFLA_IFNAME", name), ("IFLA_MASTER", master), ("IFLA_LINKINFO", info)]
    return _request(_NEWLINK, message, CREATE | EXCLUSIVE)


@lru_cache(_KEPT)
def link_up(index: int) -> NetlinkRequest:
    message = _up(ifinfmsg())
    message["index"] = index
    return _request(_NEWLINK, message)


def join_bridge(index: int, bridge: int) -> NetlinkRequest:
    """Make a link a port of `bridge`, and up."""
    message = _up(ifinfmsg())
    message["index"] = index
    message["attrs"] = [("IFLA_MASTER", bridge)]
    return _request(_NEWLINK, message)


def learn_nothing(index: int, *, flood: bool = True) -> NetlinkRequest:
    """Let the bridge of port `index` keep no table of who is behind it; without `flood`, send there no frames for
    somebody of whom it does not know where they are."""
    data = {"attrs": [("IFLA_BRPORT_LEARNING", 0), ("IFLA_BRPORT_UNICAST_FLOOD", int(flood))]}
    message = ifinfmsg()
    message["index"] = index
    message["attrs"] = [
        ("IFLA_LINKINFO", {"attrs": [("IFLA_INFO_SLAVE_KIND", "bridge"), ("IFLA_INFO_SLAVE_DATA", data)]})
    ]
    return _request(_NEWLINK, message)


def stand_behind(index: int, mac: str) -> NetlinkRequest:
    """Tell the bridge of port `index` that frames for `mac` go there, whatever it hears."""
    message = ndmsg()
    message["family"], message["ifindex"] = _AF_BRIDGE, index
    message["state"], message["flags"] = _NUD_STATIC, _NTF_MASTER
    message["attrs"] = [("NDA_LLADDR", mac)]
    return _request(_NEWNEIGH, message, CREATE | REPLACE)


def write_label(index: int, label: str) -> NetlinkRequest:
    """At most 255 characters, which stay on the link and are shown with it (`ip link`: alias)."""
    message = ifinfmsg()
    message["index"] = index
    message["attrs"] = [("IFLA_IFALIAS", label)]
    return _request(_NEWLINK, message)


def set_mac(index: int, mac: str) -> NetlinkRequest:
    message = ifinfmsg()
    message["index"] = index
    message["attrs"] = [("IFLA_ADDRESS", mac)]
    return _request(_NEWLINK, message)


def delete_link(name: str) -> NetlinkRequest:
    message = ifinfmsg()
    message["attrs"] = [("IFLA_IFNAME", name)]
    return _request(_DELLINK, message, 0, errno.ENODEV)


def delete_link_by_index(index: int) -> NetlinkRequest:
    message = ifinfmsg()
    message["index"] = index
    return _request(_DELLINK, message, 0, errno.ENODEV)


@lru_cache(_KEPT)
def add_address(index: int, address: Interface) -> NetlinkRequest:
    """Usable at once: no duplicate address detection."""
    message = ifaddrmsg()
    message["family"] = _family(address)
    message["index"] = index
    message["prefixlen"] = address.network.prefixlen
    message["flags"] = _NO_DAD if address.version == 6 else 0
    message["scope"] = _SCOPE_LINK if address.version == 4 and address.is_link_local else 0
    message["attrs"] = [("IFA_LOCAL", str(address.ip)), ("IFA_ADDRESS", str(address.ip))]
    return _request(_NEWADDR, message, CREATE | REPLACE)


@lru_cache(_KEPT)
def add_route(target: Interface, index: int, *, via: str | None = None) -> NetlinkRequest:
    """A route to the network of `target` (prefix length 0: the default route) out of link `index`; `via` is a
    neighbour that need not be in a network of the link."""
    message = _route(target, index)
    if via is not None:
        message["flags"] = _ON_LINK
        message["attrs"].append(("RTA_GATEWAY", via))
    return _request(_NEWROUTE, message, CREATE | REPLACE)


def delete_route(target: Interface, index: int) -> NetlinkRequest:
    return _request(_DELROUTE, _route(target, index), 0, errno.ESRCH)


def links(netlink: NetlinkSocket) -> list[HostLink]:
    """Every interface of the socket's namespace."""
    request = _request(_GETLINK, ifinfmsg(), DUMP, ack=False)
    return [_read_link(body) for body in netlink.dump(request)]


def link(netlink: NetlinkSocket, index: int) -> HostLink:
    """Raises `OSError` with ENODEV when it is gone."""
    asked = ifinfmsg()
    asked["index"] = index
    return _read_link(netlink.ask(_request(_GETLINK, asked, ack=False)))


def other_end_of(netlink: NetlinkSocket, index: int) -> int | None:
    """The index of a veth's far end, in whatever namespace that is."""
    asked = ifinfmsg()
    asked["index"] = index
    value = _decode(netlink.ask(_request(_GETLINK, asked, ack=False))).get_attr("IFLA_LINK")
    return None if value is None else int(value)


def index_of(name: str) -> int | None:
    """The index of an interface of the calling thread's namespace."""
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return None


def _up(message: Any) -> Any:
    message["flags"] = message["change"] = _IFF_UP
    return message


def _route(target: Interface, index: int) -> Any:
    message, network = rtmsg(), target.network
    message["family"] = _family(target)
    message["dst_len"] = network.prefixlen
    message["table"], message["proto"], message["type"] = _TABLE_MAIN, _PROTO_STATIC, _UNICAST
    message["scope"] = _SCOPE_LINK if target.version == 4 and network.prefixlen == 32 else 0
    message["attrs"] = [("RTA_OIF", index)]
    if network.prefixlen:
        message["attrs"].append(("RTA_DST", str(network.network_address)))
    return message


def _family(address: Interface) -> int:
    return int(socket.AF_INET6 if address.version == 6 else socket.AF_INET)


def _request(kind: int, message: Any, flags: int = 0, *tolerated: int, ack: bool = True) -> NetlinkRequest:
    message.encode()
    return NetlinkRequest(kind, bytes(message.data[_HEADER_SIZE:]), flags, frozenset(tolerated), ack)


def _decode(body: bytes) -> Any:
    message = ifinfmsg(struct.pack("=IHHII", _HEADER_SIZE + len(body), _NEWLINK, 0, 0, 0) + body)
    message.decode()
    return message


def _read_link(body: bytes) -> HostLink:
    message = _decode(body)
    return HostLink(
        index=message["index"],
        name=message.get_attr("IFLA_IFNAME"),
        master=message.get_attr("IFLA_MASTER"),
        label=message.get_attr("IFLA_IFALIAS"),
    )
