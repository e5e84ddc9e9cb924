"""The packet rules of one node: a table whose rules never change and one set that says which networks exist.

A machine reaches machines of its own network, the world outside (masqueraded) and, of the host itself, only ICMP.
Nothing new reaches a machine but from its own network and from the host. `install` runs `nft` once at boot; joining
and leaving are netlink messages to the set. Keyed by node id, so several nodes on one host do not meet.
"""

from collections.abc import Sequence

import anyio

from hawker.errors import CannotStart
from hawker.host.address import bridge_prefix
from hawker.host.anti_spoofing import frame_rules
from hawker.host.netlink import NetlinkRequest
from hawker.host.nft_messages import INET, Element, add_elements, delete_element
from hawker.ids import NodeId

_IFNAMSIZ = 16
_NETWORKS = "networks"

# Re-reading it keeps the set's elements: `flush table` empties chains only. The pair is the same bridge twice; it
# passes what the host routes within a network, and bridged traffic where br_netfilter shows it to these hooks.
_RULES = """
table inet {table}
flush table inet {table}
table inet {table} {{
  set networks {{
    type ifname . ifname
  }}
  chain antispoof {{
    type filter hook prerouting priority mangle; policy accept;
    iifname "{bridges}*" jump from_machine
  }}
  chain from_machine {{
    ip6 saddr {{ fe80::/10, :: }} return
    fib saddr . iif oif missing drop
  }}
  chain input {{
    type filter hook input priority filter; policy accept;
    iifname "{bridges}*" jump to_host
  }}
  chain to_host {{
    ct state established,related accept
    meta l4proto {{ icmp, ipv6-icmp }} accept
    drop
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname . oifname @networks accept
    oifname "{bridges}*" jump to_machine
    iifname "{bridges}*" ip daddr 169.254.0.0/16 drop
  }}
  chain to_machine {{
    iifname "{bridges}*" drop
    ct state established,related accept
    drop
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    iifname "{bridges}*" oifname != "{bridges}*" masquerade
  }}
}}
"""


def table_name(node_id: NodeId) -> str:
    return f"hawker_{node_id[:4]}"


def ruleset(node_id: NodeId) -> str:
    """What `nft -f` reads. Applied whole or not at all; applying it again changes nothing."""
    return _RULES.format(table=table_name(node_id), bridges=bridge_prefix(node_id)) + frame_rules(node_id)


async def install(node_id: NodeId) -> None:
    """Put the node's rules in place. Raises `CannotStart` when the kernel or `nft` refuses."""
    try:
        done = await anyio.run_process(["nft", "-f", "-"], input=ruleset(node_id).encode(), check=False)
    except FileNotFoundError as error:
        raise CannotStart("nft is missing: apt-get install nftables") from error
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise CannotStart(f"nft refused the node's packet rules: {reason[0]}")


def admit_network(node_id: NodeId, bridge: str) -> Sequence[NetlinkRequest]:
    """Let the machines behind `bridge` talk to each other."""
    return add_elements([_pair(node_id, bridge)])


def forget_network(node_id: NodeId, bridge: str) -> Sequence[NetlinkRequest]:
    return delete_element(_pair(node_id, bridge))


def _pair(node_id: NodeId, bridge: str) -> Element:
    """The key is the bridge's name twice."""
    name = bridge.encode().ljust(_IFNAMSIZ, b"\0")
    return Element(INET, table_name(node_id), _NETWORKS, name + name)
