"""Network policies as packet rules: what machines may send and be sent, in a table beside the node's own one.

The table is written whole, in one transaction, from a list of packet filters, and never changed: an empty chain whose
name is a digest of the rest says which list is in force. What is sent is told by the sender's link address, which a
machine cannot forge; what is received by the addresses that it owns. Link-local addresses, broadcast and multicast are
for finding neighbours only. Machines of one network meet in a bridge, whose packets come by these rules only where the
kernel's `br_netfilter` shows them, which is asked for bridge by bridge. All state is the kernel's.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple, TypeAlias

import anyio
import msgspec

from hawker.errors import Fault
from hawker.fair.threads import Pool, in_thread
from hawker.host import links
from hawker.host.address import bridge_name, machine_mac, machine_prefix
from hawker.host.netlink import NETLINK_NETFILTER, NetlinkSocket
from hawker.host.nft_messages import look_up_chain, look_up_table
from hawker.host.nftables import refusal_of, table_name
from hawker.ids import MachineId, NodeId
from hawker.value_object import ValueObject

_SWITCHES = Path("/proc/sys/net/bridge")  # there once br_netfilter is
_LOAD = ("modprobe", "br_netfilter")
_SYS_NET = Path("/sys/class/net")


class FilteredPort(NamedTuple):
    """A port that a network policy allows. `protocol` is tcp or udp; `number` is 1 to 65535, or None for every port of
    the protocol."""

    protocol: str
    number: int | None


FilteredPorts: TypeAlias = frozenset[FilteredPort]


class PacketFilter(ValueObject, frozen=True):
    """The ports at which one machine may be reached (`ingress`) and that it may reach (`egress`): None for everything;
    an empty set for nothing new. `ipv4` None: the machine has no IPv4 address."""

    machine_id: MachineId
    network_id: int
    """The number of the machine's private network, 0 to 4294967295."""
    ipv4: IPv4Address | None = None
    ingress: FilteredPorts | None = msgspec.field(default=None)
    egress: FilteredPorts | None = msgspec.field(default=None)


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


def policy_table(node_id: NodeId) -> str:
    return f"{table_name(node_id)}_fences"


def mark(filters: Sequence[PacketFilter]) -> str:
    """The name of the chain that says that these filters are in force, and no others."""
    told = [
        (each.machine_id, each.network_id, str(each.ipv4), _sorted(each.ingress), _sorted(each.egress))
        for each in sorted(filters, key=lambda each: each.machine_id)
    ]
    return f"is_{hashlib.sha256(repr((_RULES, told)).encode()).hexdigest()[:16]}"


def policy_rules(node_id: NodeId, filters: Sequence[PacketFilter]) -> str:
    """The rules of the filters for `nft -f`, which applies them whole or not at all. Without filters there is no
    table."""
    table = policy_table(node_id)
    if not filters:
        return f"table inet {table} {{}}\ndelete table inet {table}\n"
    chains: dict[FilteredPorts, str] = {}
    egress, ingress6, ingress4 = list[str](), list[str](), list[str]()
    for each in filters:
        if each.egress is not None:
            egress.append(f"{machine_mac(each.machine_id)} : jump {_chain(chains, each.egress)}")
        if each.ingress is not None:
            chain = _chain(chains, each.ingress)
            ingress6.append(f"{machine_prefix(each.network_id, each.machine_id)} : jump {chain}")
            ingress4 += [] if each.ipv4 is None else [f"{each.ipv4} : jump {chain}"]
    bridges = sorted({bridge_name(node_id, each.network_id) for each in filters})
    return _RULES.format(
        table=table,
        mark=mark(filters),
        neighbours=_NEIGHBOURS,
        chains="\n".join(f"  chain {name} {{\n{_allowing(ports)}    drop\n  }}" for ports, name in chains.items()),
        egress=_elements(egress),
        ingress6=_elements(ingress6),
        ingress4=_elements(ingress4),
        bridges=", ".join(f'"{name}"' for name in bridges),
    )


async def install_policies(node_id: NodeId, filters: Sequence[PacketFilter]) -> None:
    """Put the rules of these filters in force, in place of the earlier ones. Raises `Fault` when `nft` refuses; then
    what was in force stays in force."""
    reason = await refusal_of(policy_rules(node_id, filters))
    if reason:
        raise Fault(f"nft refused the rules of network policies: {reason}")


def _chain(chains: dict[FilteredPorts, str], ports: FilteredPorts) -> str:
    """Machines that may do the same share a chain."""
    return chains.setdefault(ports, f"only_{len(chains)}")


def _allowing(ports: FilteredPorts) -> str:
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


def _sorted(ports: FilteredPorts | None) -> list[tuple[str, int]] | None:
    return None if ports is None else sorted((port.protocol, port.number or 0) for port in ports)


class NodePacketFilters:
    """The packet filters of one node's machines. Keeps `netpolicy.policies.HostFilters`. Not for two tasks at once."""

    def __init__(self, node_id: NodeId, switches: Path = _SWITCHES, load: Sequence[str] = _LOAD) -> None:
        self._node_id = node_id
        self._table = policy_table(node_id)
        self._switches = switches
        self._load = load

    async def install_filters(self, wanted: Sequence[PacketFilter]) -> None:
        """Put these filters in force, and no others. Raises `Fault` when the host cannot have them; then what was in
        force stays in force."""
        if wanted:
            why = await self.lack_of_filters()
            if why:
                raise Fault(f"network policies are not in force: {why}")
            await in_thread(Pool.HOST, self._show_packets, wanted)
        if not await in_thread(Pool.HOST, self._stand, wanted):
            await install_policies(self._node_id, wanted)

    async def in_force(self, wanted: Sequence[PacketFilter]) -> bool:
        return await in_thread(Pool.HOST, lambda: self._stand(wanted) and not self._hidden(wanted))

    async def lack_of_filters(self) -> str:
        """Why this host cannot have filters, "" where it can. Loads the missing kernel module, if it can be had. Other
        bridges of the host go on as before: the module does not send their packets through packet rules."""
        if self._switches.is_dir():
            return ""
        with suppress(FileNotFoundError):
            await anyio.run_process(self._load, check=False)
        if not self._switches.is_dir():
            return "this host's kernel does not show packets within a bridge to packet rules: modprobe br_netfilter"
        for switch in self._switches.glob("bridge-nf-call-*"):
            switch.write_text("0")
        return ""

    def _stand(self, wanted: Sequence[PacketFilter]) -> bool:
        question = look_up_chain(self._table, mark(wanted)) if wanted else look_up_table(self._table)
        try:
            with NetlinkSocket(NETLINK_NETFILTER) as rules:
                rules.ask(question)
        except FileNotFoundError:
            return not wanted
        return bool(wanted)

    def _show_packets(self, wanted: Sequence[PacketFilter]) -> None:
        hidden = self._hidden(wanted)
        indexes = [index for name in hidden if (index := links.index_of(name)) is not None]
        if indexes:
            with NetlinkSocket() as host:
                host.apply([links.show_packets(index) for index in indexes])

    def _hidden(self, wanted: Sequence[PacketFilter]) -> list[str]:
        """Bridges that are there and do not show their packets."""
        names = sorted({bridge_name(self._node_id, each.network_id) for each in wanted})
        return [name for name in names if not _shows(name)]


def _shows(bridge: str) -> bool:
    switches = [_SYS_NET / bridge / "bridge" / f"nf_call_{kind}" for kind in ("iptables", "ip6tables")]
    try:
        return all(switch.read_text().strip() == "1" for switch in switches)
    except OSError:
        return True  # the bridge went, or is no bridge of ours
