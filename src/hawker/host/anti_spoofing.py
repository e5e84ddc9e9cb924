"""Which frames a machine may send: a table of rules at the bridges, before anything else sees a frame, and sets that
say what is whose.

A machine sends with its own link address, from its own addresses, and answers for no others: not in ARP, not in
neighbour discovery, not as a router (RFC 4861) and not as a DHCP server. Root in a guest sends whatever it likes, so
this holds for all machines. Ends of links are told by their index, which the kernel never gives twice: what a crash
leaves in the sets is true of nobody, and a link that is in none of them sends nothing.
"""

import struct
from collections.abc import Iterable, Sequence

from hawker.host import nft_messages
from hawker.host.address import interface_prefix, machine_link_local, machine_mac, machine_prefix
from hawker.host.machine_link import NetworkPlan
from hawker.host.netlink import NetlinkRequest, NetlinkSocket
from hawker.host.nft_messages import BRIDGE, Element
from hawker.ids import NodeId

_LINKS, _IPV4, _PREFIXES, _LOCALS = "links", "ipv4", "prefixes", "locals"
_PREFIX_BYTES = 14

# A key is what a rule loads, so one set of /112 serves for sources (at 64 bits of the header) and for the targets of
# neighbour discovery (at 64 bits of the message). 131, 132, 143 and 133 are what a host says before it has an address:
# listener reports and router solicitations.
_RULES = """
table bridge {table}
flush table bridge {table}
table bridge {table} {{
  set links {{ type iface_index . ether_addr; }}
  set ipv4 {{ type iface_index . ipv4_addr; }}
  set prefixes {{ typeof meta iif . @nh,64,112; }}
  set locals {{ typeof meta iif . @nh,64,128; }}
  chain targets {{
    iif . @th,64,112 @prefixes accept
    iif . @th,64,128 @locals accept
    drop
  }}
  chain own_ipv6 {{
    icmpv6 type nd-neighbor-advert goto targets
    icmpv6 type {{ nd-router-advert, nd-redirect }} drop
    udp sport 547 udp dport 546 drop
    accept
  }}
  chain send_ipv6 {{
    iif . @nh,64,112 @prefixes goto own_ipv6
    iif . @nh,64,128 @locals goto own_ipv6
    ip6 saddr != :: drop
    icmpv6 type {{ 131, 132, 133, 143 }} accept
    icmpv6 type nd-neighbor-solicit goto targets
    drop
  }}
  chain own_ipv4 {{
    udp sport 67 udp dport 68 drop
    accept
  }}
  chain send_own {{
    ether type ip6 goto send_ipv6
    ether type ip iif . ip saddr @ipv4 goto own_ipv4
    arp htype 1 arp hlen 6 arp plen 4 iif . arp saddr ether @links iif . arp saddr ip @ipv4 accept
    drop
  }}
  chain send {{
    iif . ether saddr @links goto send_own
    drop
  }}
  chain prerouting {{
    type filter hook prerouting priority -300; policy accept;
    iifname "{prefix}v*" goto send
    iifname "{prefix}w*" goto send
  }}
}}
"""


def frame_table(node_id: NodeId) -> str:
    return f"hawker_{node_id[:4]}_frames"


def frame_rules(node_id: NodeId) -> str:
    """The table of rules for `nft -f`. Applying it again changes nothing, and keeps the sets."""
    return _RULES.format(table=frame_table(node_id), prefix=interface_prefix(node_id))


def look_up_frames(node_id: NodeId) -> NetlinkRequest:
    """A request that the kernel answers with the table; ENOENT when the table is not there."""
    return nft_messages.look_up_table(frame_table(node_id), BRIDGE)


def remove_frames(node_id: NodeId) -> Sequence[NetlinkRequest]:
    return nft_messages.remove_table(frame_table(node_id), BRIDGE)


def let_send(node_id: NodeId, index: int, plan: NetworkPlan) -> Sequence[NetlinkRequest]:
    """Let the machine whose link's end on the host is `index` send as itself."""
    return nft_messages.add_elements(_elements(node_id, index, plan))


def forget(rules: NetlinkSocket, node_id: NodeId, index: int, plan: NetworkPlan) -> None:
    for element in _elements(node_id, index, plan):
        rules.apply(nft_messages.delete_element(element))


def senders(rules: NetlinkSocket, node_id: NodeId) -> frozenset[int]:
    """The indexes of the links' ends on the host that may send."""
    return frozenset(_index_of(element) for element in _listed(rules, node_id, [_LINKS]))


def forget_gone(rules: NetlinkSocket, node_id: NodeId, there: Iterable[int]) -> None:
    """Remove from the sets every element that is not about one of the ends of links that are `there`."""
    known = frozenset(there)
    for element in _listed(rules, node_id, [_LINKS, _IPV4, _PREFIXES, _LOCALS]):
        if _index_of(element) not in known:
            rules.apply(nft_messages.delete_element(element))


def _listed(rules: NetlinkSocket, node_id: NodeId, names: Iterable[str]) -> list[Element]:
    table = frame_table(node_id)
    return [
        Element(BRIDGE, table, name, key)
        for name in names
        for body in rules.dump(nft_messages.list_elements(BRIDGE, table, name))
        for key in nft_messages.read_keys(body)
    ]


def _elements(node_id: NodeId, index: int, plan: NetworkPlan) -> list[Element]:
    mac = bytes.fromhex(machine_mac(plan.machine_id).replace(":", ""))
    prefix = machine_prefix(plan.network_id, plan.machine_id).network_address.packed[:_PREFIX_BYTES]
    found = [(_LINKS, mac), (_PREFIXES, prefix), (_LOCALS, machine_link_local(plan.machine_id).packed)]
    if plan.ipv4 is not None:
        found.append((_IPV4, plan.ipv4.packed))
    return [
        Element(BRIDGE, frame_table(node_id), name, struct.pack("=I", index) + part + bytes(-len(part) % 4))
        for name, part in found
    ]


def _index_of(element: Element) -> int:
    return int(struct.unpack_from("=I", element.key)[0])
