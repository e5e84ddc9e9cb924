"""Where machines may not send by themselves: cloud metadata, the members of the fleet, and the host's own networks.

What is withheld is worked out from values, and kept in a table of its own that is written whole, in one transaction;
an empty chain named after its digest says which plan is in force. A packet has to pass this table, the node's rules
and the network policies of its app: none opens what another closes. Replies always pass. An operator opens a network
by naming it or one around it; metadata and members only by naming no more than them, so that a wide range that is
opened for a database does not hand out the host's credentials.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    collapse_addresses,
    ip_address,
    ip_network,
)
from typing import TypeAlias

from hawker.host.address import bridge_prefix, mesh_name, peers_name
from hawker.host.nftables import table_name
from hawker.host.uplink import connected_networks
from hawker.ids import NodeId
from hawker.settings import PRIVATE_NETWORKS
from hawker.value_object import ValueObject

Network: TypeAlias = IPv4Network | IPv6Network

METADATA = {
    "169.254.0.0/16": "link-local (RFC 3927): AWS, Azure, GCP, OCI, DigitalOcean, Hetzner, OpenStack and more",
    "168.63.129.16/32": "Azure WireServer: learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16",
    "100.100.100.200/32": "Alibaba Cloud: alibabacloud.com/help/en/ecs/user-guide/view-instance-metadata",
    "192.0.0.192/32": "Oracle Cloud Classic: docs.oracle.com, Retrieve Predefined Instance Metadata",
    "fd00:ec2::/32": "AWS over IPv6: AWS whitepaper 'IPv6 on AWS', Supporting Amazon VPC services",
    "fd20:ce::254/128": "GCP over IPv6: docs.cloud.google.com/compute/docs/metadata/querying-metadata",
    "fd00:c1::a9fe:a9fe/128": "Oracle Cloud over IPv6: docs.oracle.com/iaas, Instance Metadata Service",
    "fd00:42::42/128": "Scaleway over IPv6: scaleway.com/docs/instances, How to use the metadata API",
    "fe80::/10": "link-local (RFC 4291): OpenStack over IPv6",
}
"""Networks at which clouds tell an instance its metadata, credentials among it; each with the page that says so."""

PRIVATE = {
    "10.0.0.0/8": "RFC 1918",
    "172.16.0.0/12": "RFC 1918",
    "192.168.0.0/16": "RFC 1918",
    "100.64.0.0/10": "RFC 6598: between a carrier and its customers",
    "fc00::/7": "RFC 4193: unique local addresses",
    "64:ff9b:1::/48": "RFC 8215: local translation of addresses",
}
"""Networks that are somebody's own, each with its source; one word of the setting `egress_allow` means all of them."""

_TRANSLATED = IPv6Network("64:ff9b::/96")  # RFC 6052: a NAT64 sends what comes for 64:ff9b::A on to the IPv4 address A
_BITS_BEFORE_IPV4 = 96


class EgressPlan(ValueObject, frozen=True):
    """The networks to which a node's machines may not send (`withheld`): no two overlap. `resolvers` answer at port 53,
    wherever they are."""

    withheld: tuple[Network, ...]
    resolvers: tuple[IPv4Address | IPv6Address, ...] = ()


def parse_allowed(texts: Iterable[str]) -> tuple[Network, ...]:
    """The networks in the setting `egress_allow`: networks, addresses, and the word `private`. Raises `ValueError`."""
    words = [word for text in texts for word in (PRIVATE if text == PRIVATE_NETWORKS else (text,))]
    return tuple(map(ip_network, words))


def plan_egress(
    connected: Iterable[Network], members: Iterable[str], allowed: Sequence[Network], resolvers: Iterable[str] = ()
) -> EgressPlan:
    """The plan for these networks. `connected` are the networks that the host is in; `members` and `resolvers` are
    addresses; names among them are left out."""
    exact = [*map(ip_network, METADATA), *(ip_network(each) for each in members if _is_address(each))]
    wide = [*map(ip_network, PRIVATE), *connected]
    narrow = [each for each in allowed if any(_within(each, point) for point in exact)]
    withheld = [*_without(wide, allowed), *_without(exact, narrow)]
    withheld += [_translated(each) for each in withheld if isinstance(each, IPv4Network)]
    four = collapse_addresses(each for each in withheld if isinstance(each, IPv4Network))
    six = collapse_addresses(each for each in withheld if isinstance(each, IPv6Network))
    return EgressPlan((*four, *six), tuple(sorted(map(ip_address, filter(_is_address, resolvers)), key=str)))


def exposed_metadata(allowed: Iterable[Network]) -> list[Network]:
    """The networks that an operator allows and that have addresses where clouds keep metadata."""
    return [each for each in allowed if any(_within(each, ip_network(point)) for point in METADATA)]


def _without(networks: Iterable[Network], allowed: Iterable[Network]) -> list[Network]:
    left = list(networks)
    for opened in allowed:
        left = [part for each in left for part in _rest(each, opened)]
    return left


def _rest(network: Network, opened: Network) -> Iterable[Network]:
    if _within(network, opened):
        return []
    if not _within(opened, network):
        return [network]
    if isinstance(network, IPv4Network):
        assert isinstance(opened, IPv4Network)
        return network.address_exclude(opened)
    assert isinstance(opened, IPv6Network)
    return network.address_exclude(opened)


def _within(inner: Network, outer: Network) -> bool:
    if isinstance(inner, IPv4Network):
        return isinstance(outer, IPv4Network) and inner.subnet_of(outer)
    return isinstance(outer, IPv6Network) and inner.subnet_of(outer)


def _translated(network: IPv4Network) -> IPv6Network:
    first = int(_TRANSLATED.network_address) + int(network.network_address)
    return IPv6Network((first, _BITS_BEFORE_IPV4 + network.prefixlen))


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


_RULES = """
table inet {table} {{}}
delete table inet {table}
table inet {table} {{
  chain {mark} {{
  }}
  counter withheld {{
  }}
  set withheld4 {{ type ipv4_addr; flags interval; {withheld4} }}
  set withheld6 {{ type ipv6_addr; flags interval; {withheld6} }}
  set resolvers4 {{ type ipv4_addr; {resolvers4} }}
  set resolvers6 {{ type ipv6_addr; {resolvers6} }}
  chain forward {{
    type filter hook forward priority filter - 5; policy accept;
    iifname "{bridges}*" oifname != "{bridges}*" oifname != "{mesh}" oifname != "{peers}" goto outwards
  }}
  chain outwards {{
    ct direction reply accept
    meta l4proto {{ tcp, udp }} th dport 53 ip daddr @resolvers4 accept
    meta l4proto {{ tcp, udp }} th dport 53 ip6 daddr @resolvers6 accept
    ip daddr @withheld4 counter name withheld drop
    ip6 daddr @withheld6 counter name withheld drop
  }}
}}
"""

WITHHELD = "withheld"
"""The name of the counter of packets that were dropped."""


def egress_table(node_id: NodeId) -> str:
    return f"{table_name(node_id)}_egress"


def egress_mark(plan: EgressPlan) -> str:
    """The name of the chain that says that this plan is in force."""
    told = (_RULES, [*map(str, plan.withheld)], [*map(str, plan.resolvers)])
    return f"is_{hashlib.sha256(repr(told).encode()).hexdigest()[:16]}"


def egress_rules(node_id: NodeId, plan: EgressPlan) -> str:
    """The rules of the plan for `nft -f`, which applies them whole or not at all."""
    return _RULES.format(
        table=egress_table(node_id),
        mark=egress_mark(plan),
        bridges=bridge_prefix(node_id),
        mesh=mesh_name(node_id),
        peers=peers_name(node_id),
        withheld4=_elements(each for each in plan.withheld if each.version == 4),
        withheld6=_elements(each for each in plan.withheld if each.version == 6),
        resolvers4=_elements(each for each in plan.resolvers if each.version == 4),
        resolvers6=_elements(each for each in plan.resolvers if each.version == 6),
    )


def _elements(items: Iterable[object]) -> str:
    told = ", ".join(map(str, items))
    return f"elements = {{ {told} }}" if told else ""


class Egress:
    """The networks to which one node's machines may not send, worked out anew at each call of `plan`: hosts move
    between networks, and members come and go. `connected` and `resolvers` read the host."""

    def __init__(
        self,
        allowed: Sequence[Network] = (),
        *,
        members: frozenset[str] = frozenset(),
        resolvers: Callable[[], Sequence[str]] = tuple,
        connected: Callable[[], Sequence[Network]] = connected_networks,
    ) -> None:
        self.members = members
        self._allowed = allowed
        self._resolvers = resolvers
        self._connected = connected

    def plan(self) -> EgressPlan:
        return plan_egress(self._connected(), self.members, self._allowed, self._resolvers())
