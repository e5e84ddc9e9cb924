"""The packet rules of one node: a table whose rules never change and one set that says which networks exist.

A machine reaches machines of its own network, the world outside (masqueraded) and, of the host itself, only ICMP.
Nothing new reaches a machine but from its own network and from the host. `install` runs `nft` once at boot; joining
and leaving are netlink messages to the set. Keyed by node id, so several nodes on one host do not meet.
"""

import socket
import struct
from collections.abc import Sequence

import anyio

from hawker.errors import CannotStart
from hawker.host.address import bridge_prefix
from hawker.host.netlink import CREATE, Request
from hawker.ids import NodeId

_IFNAMSIZ = 16
_SUBSYSTEM = 10 << 8
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NEW_ELEMENT, _DELETE_ELEMENT, _DELETE_TABLE = _SUBSYSTEM | 12, _SUBSYSTEM | 14, _SUBSYSTEM | 2
_GET_TABLE = _SUBSYSTEM | 1
_INET = 1
_NESTED = 0x8000
_ENOENT, _EEXIST = 2, 17

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
    return _RULES.format(table=table_name(node_id), bridges=bridge_prefix(node_id))


async def install(node_id: NodeId) -> None:
    """Put the node's rules in place. Raises `CannotStart` when the kernel or `nft` refuses."""
    try:
        done = await anyio.run_process(["nft", "-f", "-"], input=ruleset(node_id).encode(), check=False)
    except FileNotFoundError as error:
        raise CannotStart("nft is missing: apt-get install nftables") from error
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise CannotStart(f"nft refused the node's packet rules: {reason[0]}")


def look_up_table(node_id: NodeId) -> Request:
    """Answered with the node's table; ENOENT when it is not there."""
    return Request(_GET_TABLE, _nfgen(_INET, 0) + _attribute(1, _text(table_name(node_id))), ack=False)


def admit_network(node_id: NodeId, bridge: str) -> Sequence[Request]:
    """Let the machines behind `bridge` talk to each other."""
    return _batch(Request(_NEW_ELEMENT, _element(node_id, bridge), CREATE, frozenset({_EEXIST})))


def forget_network(node_id: NodeId, bridge: str) -> Sequence[Request]:
    return _batch(Request(_DELETE_ELEMENT, _element(node_id, bridge), 0, frozenset({_ENOENT})))


def remove_table(node_id: NodeId) -> Sequence[Request]:
    name = _attribute(1, _text(table_name(node_id)))
    return _batch(Request(_DELETE_TABLE, _nfgen(_INET, 0) + name, 0, frozenset({_ENOENT})))


def _element(node_id: NodeId, bridge: str) -> bytes:
    """NFTA_SET_ELEM_LIST_*: the table, the set, one element whose key is the bridge's name twice."""
    name = bridge.encode().ljust(_IFNAMSIZ, b"\0")
    key = _nested(1, _attribute(1, name + name))
    elements = _nested(3, _nested(1, key))
    return _nfgen(_INET, 0) + _attribute(1, _text(table_name(node_id))) + _attribute(2, _text("networks")) + elements


def _batch(request: Request) -> Sequence[Request]:
    frame = _nfgen(0, socket.htons(10))
    return Request(_BATCH_BEGIN, frame, ack=False), request, Request(_BATCH_END, frame, ack=False)


def _nfgen(family: int, resource: int) -> bytes:
    return struct.pack("=BBH", family, 0, resource)


def _attribute(kind: int, payload: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def _nested(kind: int, payload: bytes) -> bytes:
    return _attribute(_NESTED | kind, payload)


def _text(value: str) -> bytes:
    return value.encode() + b"\0"
