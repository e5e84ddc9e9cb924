"""The packet rules of one node: a table whose rules never change and sets that say which networks exist.

A machine reaches its own network, the world (masqueraded) and, of the host, ICMP, the resolver, the API where the
settings say so, and the edge at an app's address (bits 16 to 23 are 1). Both ends of what passes the mesh, or the
device of WireGuard peers, are in one network; what is for private addresses goes nowhere else. Nothing new reaches a
machine but from its network and its host. What it may take of what the host has once for all is bounded by its link
address. `install` runs `nft` once at boot, joining and leaving are netlink messages. Keyed by node id.
"""

from collections.abc import Iterable, Sequence

import anyio

from hawker.errors import CannotStart
from hawker.host.address import bridge_prefix, mesh_name, network_of, network_prefix, peers_name
from hawker.host.anti_spoofing import frame_rules
from hawker.host.netlink import NetlinkRequest, NetlinkSocket
from hawker.host.nft_messages import INET, Element, add_elements, delete_element
from hawker.ids import NodeId
from hawker.names import API_PORT, RESOLVER
from hawker.value_object import ValueObject

_IFNAMSIZ = 16
_NETWORKS, _OF_NETWORK, _PEER_NETWORKS = "networks", "of_network", "peer_networks"
_PREFIX_BYTES = 6
_BURST_S = 10
_IN_BATCH = 100
_MACHINES = 65535  # in a set; frames of others than machines never come here


class LinkLimits(ValueObject, frozen=True):
    """The limits of each machine's link; 0: none. `connections` that it began and that are open at once,
    `connections_per_s` that it begins, with ten seconds' worth at once, `packets_per_s` that it sends."""

    connections: int = 8192
    connections_per_s: int = 500
    packets_per_s: int = 100_000


OVER_CONNECTIONS, OVER_CONNECTION_RATE, OVER_PACKET_RATE = (
    "over_connections",
    "over_connection_rate",
    "over_packet_rate",
)
"""The names of the counters of packets that were dropped for these limits."""

# Re-reading it keeps the set's elements: `flush table` empties chains only. The pair is the same bridge twice; it
# passes what the host routes within a network, and bridged traffic where br_netfilter shows it to these hooks.
# `of_network` is an address's first 48 bits (at 64 or 192 bits of the header) beside the bridge of that network. Nobody
# is redirected to a neighbour: what goes from machine to machine comes by the host.
_RULES = """
table inet {table}
flush table inet {table}
table inet {table} {{
  set networks {{
    type ifname . ifname
  }}
  set of_network {{ typeof @nh,64,48 . meta iifname; }}
  set peer_networks {{ typeof @nh,64,48 . @nh,192,48; }}
  set flows {{ type ether_addr; flags dynamic; size {machines}; }}
  set dials {{ type ether_addr; flags dynamic,timeout; size {machines}; timeout 1m; }}
  set packets {{ type ether_addr; flags dynamic,timeout; size {machines}; timeout 1m; }}
  counter {over_connections} {{
  }}
  counter {over_connection_rate} {{
  }}
  counter {over_packet_rate} {{
  }}
  chain antispoof {{
    type filter hook prerouting priority mangle; policy accept;
    iifname "{bridges}*" jump limit_packets
    iifname "{bridges}*" ct state new jump limit_flows
    iifname "{bridges}*" jump from_machine
  }}
  chain limit_packets {{
    {packet_rate}
  }}
  chain limit_flows {{
    {flow_rate}
    {flow_count}
  }}
  chain from_machine {{
    ip6 saddr {{ fe80::/10, :: }} return
    fib saddr . iif oif missing drop
  }}
  chain to_api {{
    type nat hook prerouting priority dstnat; policy accept;
    {peer_api}
  }}
  chain input {{
    type filter hook input priority filter; policy accept;
    iifname "{bridges}*" jump to_host
    iifname "{mesh}" drop
    iifname "{peers}" goto peer_to_host
    iifname != "lo" iifname != "hw*" ip6 daddr fdaa::/16 drop
  }}
  chain to_host {{
    ct state established,related accept
    meta l4proto {{ icmp, ipv6-icmp }} accept
    ip6 daddr {resolver} meta l4proto {{ tcp, udp }} th dport 53 accept
    {api}
    meta nfproto ipv6 @nh,192,48 . iifname @of_network ip6 daddr & ::ff:0 == ::1:0 meta l4proto {{ tcp, udp }} accept
    drop
  }}
  chain peer_to_host {{
    ct state established,related accept
    meta nfproto ipv6 @nh,64,48 . @nh,192,48 @peer_networks jump in_network
    {translated}
    drop
  }}
  chain in_network {{
    meta l4proto ipv6-icmp accept
    ip6 daddr & ::ffff:ffff:ffff:ffff:ffff == ::3 meta l4proto {{ tcp, udp }} th dport 53 accept
    ip6 daddr & ::ff:0 == ::1:0 meta l4proto {{ tcp, udp }} accept
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname . oifname @networks accept
    iifname "{peers}" goto with_peer
    oifname "{peers}" goto with_peer
    iifname "{mesh}" goto from_mesh
    oifname "{mesh}" goto to_mesh
    iifname "{bridges}*" ip6 daddr fdaa::/16 drop
    oifname "{bridges}*" jump to_machine
  }}
  chain with_peer {{
    tcp flags syn / syn,rst tcp option maxseg size set rt mtu
    meta nfproto ipv6 @nh,64,48 . @nh,192,48 @peer_networks accept
    drop
  }}
  chain from_mesh {{
    meta nfproto ipv6 @nh,64,48 . oifname @of_network @nh,192,48 . oifname @of_network accept
    drop
  }}
  chain to_mesh {{
    tcp flags syn / syn,rst tcp option maxseg size set rt mtu
    meta nfproto ipv6 @nh,64,48 . iifname @of_network @nh,192,48 . iifname @of_network accept
    drop
  }}
  chain to_machine {{
    iifname "{bridges}*" drop
    ct state established,related accept
    drop
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    iifname "{bridges}*" oifname != "{bridges}*" oifname != "{mesh}" oifname != "{peers}" masquerade
  }}
  chain output {{
    type filter hook output priority filter; policy accept;
    oifname "{bridges}*" icmpv6 type nd-redirect drop
  }}
}}
"""


_API = {
    "api": f"ip6 daddr {RESOLVER} tcp dport {API_PORT} accept",
    "peer_api": "iifname {peers} meta nfproto ipv6 @nh,64,48 . @nh,192,48 @peer_networks"
    f" ip6 daddr & ::ffff:ffff:ffff:ffff:ffff == ::3 tcp dport {API_PORT} dnat ip6 to [{RESOLVER}]:{API_PORT}",
    "translated": f"ip6 daddr {RESOLVER} tcp dport {API_PORT} ct status dnat accept",
}
"""Rules that are there where machines may reach the node's API, by key of the template."""


def table_name(node_id: NodeId) -> str:
    return f"hawker_{node_id[:4]}"


def ruleset(node_id: NodeId, limits: LinkLimits | None = None, *, api: bool = False) -> str:
    """The node's rules for `nft -f`; with `api` machines and people's computers reach the node's API, the computers at
    the address of their network's resolver, since it is in their network. Applied whole or not at all; applying them
    again changes nothing but that each machine's connections are counted from then on: an element of these sets keeps
    the limit that it was made with."""
    table = table_name(node_id)
    rules = _RULES.format(
        table=table,
        bridges=bridge_prefix(node_id),
        mesh=mesh_name(node_id),
        peers=peers_name(node_id),
        machines=_MACHINES,
        resolver=RESOLVER,
        **{key: rule.format(peers=peers_name(node_id)) if api else "" for key, rule in _API.items()},
        **_limited(limits),
    )
    emptied = "".join(f"flush set inet {table} {name}\n" for name in ("flows", "dials", "packets"))
    return rules + emptied + frame_rules(node_id)


def _limited(limits: LinkLimits | None) -> dict[str, str]:
    """By key of the template. A limit of 0 leaves its chain without a rule."""
    most = limits or LinkLimits()
    counters = {
        "over_connections": OVER_CONNECTIONS,
        "over_connection_rate": OVER_CONNECTION_RATE,
        "over_packet_rate": OVER_PACKET_RATE,
    }
    return counters | {
        "packet_rate": _rate("packets", most.packets_per_s, 1, OVER_PACKET_RATE),
        "flow_rate": _rate("dials", most.connections_per_s, _BURST_S, OVER_CONNECTION_RATE),
        "flow_count": (
            f"add @flows {{ ether saddr ct count over {most.connections} }} counter name {OVER_CONNECTIONS} drop"
            if most.connections
            else ""
        ),
    }


def _rate(name: str, per_s: int, burst_s: int, counter: str) -> str:
    if not per_s:
        return ""
    over = f"limit rate over {per_s}/second burst {per_s * burst_s} packets"
    return f"update @{name} {{ ether saddr {over} }} counter name {counter} drop"


async def install(node_id: NodeId, limits: LinkLimits | None = None, more: str = "", *, api: bool = False) -> None:
    """Put the node's rules in place (`ruleset`), and `more` that belongs to them, all or nothing. Raises `CannotStart`
    when the kernel or `nft` refuses."""
    try:
        reason = await refusal_of(ruleset(node_id, limits, api=api) + more)
    except FileNotFoundError as error:
        raise CannotStart("nft is missing: apt-get install nftables") from error
    if reason:
        raise CannotStart(f"nft refused the node's packet rules: {reason}")


async def refusal_of(rules: str) -> str:
    """Apply rules by `nft -f`, whole or not at all. Returns why they were refused, or "". Raises `FileNotFoundError`
    without nft."""
    done = await anyio.run_process(["nft", "-f", "-"], input=rules.encode(), check=False)
    if done.returncode == 0:
        return ""
    return (done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"])[0]


def admit_network(node_id: NodeId, bridge: str) -> Sequence[NetlinkRequest]:
    """Let the machines behind `bridge` talk to each other, and to the machines of their network behind the mesh."""
    return add_elements([_pair(node_id, bridge), _prefix(node_id, bridge)])


def admit_peers(rules: NetlinkSocket, node_id: NodeId, networks: Iterable[int]) -> None:
    """Let people's computers into these networks, each into its own. Many networks are admitted in one batch after the
    other, since the answers to a batch wait in the socket's receive buffer until all of it is done."""
    elements = [_peer_network(node_id, each) for each in networks]
    for at in range(0, len(elements), _IN_BATCH):
        rules.apply(add_elements(elements[at : at + _IN_BATCH]))


def forget_peers(rules: NetlinkSocket, node_id: NodeId, networks: Iterable[int]) -> None:
    """Let people's computers into these networks no more."""
    for each in networks:
        rules.apply(delete_element(_peer_network(node_id, each)))


def _peer_network(node_id: NodeId, network_id: int) -> Element:
    """The key is the 48 bits of the network twice: a packet's source and where it goes."""
    prefix = network_prefix(network_id).network_address.packed[:_PREFIX_BYTES]
    return Element(INET, table_name(node_id), _PEER_NETWORKS, (prefix + bytes(-len(prefix) % 4)) * 2)


def forget_network(rules: NetlinkSocket, node_id: NodeId, bridge: str) -> None:
    for element in (_pair(node_id, bridge), _prefix(node_id, bridge)):
        rules.apply(delete_element(element))


def _pair(node_id: NodeId, bridge: str) -> Element:
    """The key is the bridge's name twice."""
    return Element(INET, table_name(node_id), _NETWORKS, _padded(bridge) * 2)


def _prefix(node_id: NodeId, bridge: str) -> Element:
    """The key is the 48 bits of the network, then the bridge's name."""
    prefix = network_prefix(network_of(bridge)).network_address.packed[:_PREFIX_BYTES]
    return Element(INET, table_name(node_id), _OF_NETWORK, prefix + bytes(-len(prefix) % 4) + _padded(bridge))


def _padded(name: str) -> bytes:
    return name.encode().ljust(_IFNAMSIZ, b"\0")
