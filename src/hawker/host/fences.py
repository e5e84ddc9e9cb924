"""What machines may send and be sent, where policies say so: a table of packet rules beside the node's own one.

It is written whole, in one transaction, from a list of fences, and never changed: an empty chain whose name is a digest
of the rest says which list is in force. What is sent is told by the sender's link address, which a machine cannot
change or forge; what is received by the addresses that it owns. In a network with fences nothing else gets through
that the rules would not see: link-local addresses, broadcast and multicast are for finding neighbours only.

Machines of one network meet in a bridge. Their packets come by these rules only where the kernel's `br_netfilter` shows
them, which is asked for bridge by bridge.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import NamedTuple, TypeAlias

import anyio

from hawker.errors import Fault
from hawker.host.address import bridge_name, machine_mac, machine_prefix
from hawker.host.nftables import table_name
from hawker.ids import MachineId, NodeId


class Port(NamedTuple):
    """`protocol` is tcp or udp; without a number, every port of it."""

    protocol: str
    number: int | None


Ports: TypeAlias = frozenset[Port]


@dataclass(frozen=True, slots=True)
class Fence:
    """Of one machine. None: open in that direction."""

    machine_id: MachineId
    network_id: int
    ipv4: IPv4Address | None = None
    ingress: Ports | None = field(default=None)
    egress: Ports | None = field(default=None)


# The checks come after those for what every machine needs to find its neighbours; `return` from a machine's chain goes
# on with the next check, so that what is sent within a network has to pass both.
_RULES = """
table inet {table} {{}}
delete table inet {table}
table inet {table} {{
  chain {mark} {{
  }}
{chains}
  map egress {{
    type ether_addr : verdict;
    {egress}
  }}
  map ingress6 {{
    type ipv6_addr : verdict;
    flags interval;
    {ingress6}
  }}
  map ingress4 {{
    type ipv4_addr : verdict;
    {ingress4}
  }}
  chain forward {{
    type filter hook forward priority filter - 10; policy accept;
    ct state established,related accept
    icmpv6 type {{ {neighbours} }} accept
    iifname {{ {bridges} }} jump side_ways
    ether saddr vmap @egress
    ip6 daddr vmap @ingress6
    ip daddr vmap @ingress4
  }}
  chain side_ways {{
    ip6 saddr fe80::/10 drop
    ip6 daddr {{ fe80::/10, ff00::/8 }} drop
    ip daddr {{ 169.254.0.0/16, 224.0.0.0/4, 255.255.255.255 }} drop
  }}
}}
"""


_NEIGHBOURS = "130-136, 143"  # discovery of neighbours and of listeners to multicast: RFC 4861, 2710, 3810


def fence_table(node_id: NodeId) -> str:
    return f"{table_name(node_id)}_fences"


def mark(fences: Sequence[Fence]) -> str:
    """The name of the chain that says that these fences are in force, and no others."""
    told = [
        (fence.machine_id, fence.network_id, str(fence.ipv4), _sorted(fence.ingress), _sorted(fence.egress))
        for fence in sorted(fences, key=lambda each: each.machine_id)
    ]
    return f"is_{hashlib.sha256(repr((_RULES, told)).encode()).hexdigest()[:16]}"


def fence_rules(node_id: NodeId, fences: Sequence[Fence]) -> str:
    """What `nft -f` reads, whole or not at all. Without fences there is no table."""
    table = fence_table(node_id)
    if not fences:
        return f"table inet {table} {{}}\ndelete table inet {table}\n"
    chains: dict[Ports, str] = {}
    egress, ingress6, ingress4 = list[str](), list[str](), list[str]()
    for fence in fences:
        if fence.egress is not None:
            egress.append(f"{machine_mac(fence.machine_id)} : jump {_chain(chains, fence.egress)}")
        if fence.ingress is not None:
            chain = _chain(chains, fence.ingress)
            ingress6.append(f"{machine_prefix(fence.network_id, fence.machine_id)} : jump {chain}")
            ingress4 += [] if fence.ipv4 is None else [f"{fence.ipv4} : jump {chain}"]
    bridges = sorted({bridge_name(node_id, fence.network_id) for fence in fences})
    return _RULES.format(
        table=table,
        mark=mark(fences),
        neighbours=_NEIGHBOURS,
        chains="\n".join(f"  chain {name} {{\n{_allowing(ports)}    drop\n  }}" for ports, name in chains.items()),
        egress=_elements(egress),
        ingress6=_elements(ingress6),
        ingress4=_elements(ingress4),
        bridges=", ".join(f'"{name}"' for name in bridges),
    )


async def install_fences(node_id: NodeId, fences: Sequence[Fence]) -> None:
    """Raises `Fault` when `nft` refuses; then what was in force stays in force."""
    done = await anyio.run_process(["nft", "-f", "-"], input=fence_rules(node_id, fences).encode(), check=False)
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise Fault(f"nft refused the rules of network policies: {reason[0]}")


def _chain(chains: dict[Ports, str], ports: Ports) -> str:
    """Machines that may do the same share a chain."""
    return chains.setdefault(ports, f"only_{len(chains)}")


def _allowing(ports: Ports) -> str:
    lines = []
    for protocol in sorted({port.protocol for port in ports}):
        numbers = [port.number for port in ports if port.protocol == protocol]
        if None in numbers:
            lines.append(f"    meta l4proto {protocol} return\n")
        else:
            listed = ", ".join(map(str, sorted(number for number in numbers if number is not None)))
            lines.append(f"    {protocol} dport {{ {listed} }} return\n")
    return "".join(lines)


def _elements(items: Sequence[str]) -> str:
    return f"elements = {{ {', '.join(items)} }}" if items else ""


def _sorted(ports: Ports | None) -> list[tuple[str, int]] | None:
    return None if ports is None else sorted((port.protocol, port.number or 0) for port in ports)
