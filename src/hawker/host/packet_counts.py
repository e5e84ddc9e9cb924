"""What the host counts of packets: how full its table of connections is, and what was dropped of machines' packets."""

from collections.abc import Mapping
from pathlib import Path

from hawker.host.egress import WITHHELD, egress_table
from hawker.host.netlink import NETLINK_NETFILTER, NetlinkSocket
from hawker.host.nft_messages import list_counters, read_counters
from hawker.host.nftables import OVER_CONNECTION_RATE, OVER_CONNECTIONS, OVER_PACKET_RATE, table_name
from hawker.ids import NodeId
from hawker.value_object import ValueObject

_CONNTRACK = Path("/proc/sys/net/netfilter")
_LINKS = Path("/sys/class/net")

REASONS = (WITHHELD, OVER_CONNECTIONS, OVER_CONNECTION_RATE, OVER_PACKET_RATE)
"""The reasons why packets of machines are dropped."""


class TrackedConnections(ValueObject, frozen=True):
    """The kernel's connection tracking (conntrack), which the host and all its machines share: the number of entries,
    and the most there may be. A full table drops everybody's new connections."""

    entries: int
    """The number of entries, 0 to `most`."""
    most: int
    """The most entries there may be, as the host's administrator has set it."""

    @property
    def share(self) -> float:
        """The part of the table that is used, 0 to 1."""
        return self.entries / self.most if self.most else 0.0


class LinkTraffic(ValueObject, frozen=True):
    """Bytes through a machine's link since it was made, as the machine sees them."""

    received_bytes: int
    """Bytes that came to the machine."""
    sent_bytes: int
    """Bytes that the machine sent."""


def link_traffic(name: str, directory: Path = _LINKS) -> LinkTraffic | None:
    """The traffic by the counters of the host's end of the link, which receives the bytes that the machine sends; None
    when that end is not there."""
    try:
        sent, received = (int((directory / name / "statistics" / f"{way}_bytes").read_text()) for way in ("rx", "tx"))
    except (OSError, ValueError):
        return None
    return LinkTraffic(received, sent)


def connection_table(directory: Path = _CONNTRACK) -> TrackedConnections | None:
    """The connection tracking of the host; None where the kernel tracks no connections yet."""
    try:
        count, most = ((directory / f"nf_conntrack_{name}").read_text() for name in ("count", "max"))
    except FileNotFoundError:
        return None
    return TrackedConnections(int(count), int(most))


def dropped_packets(node_id: NodeId) -> Mapping[str, int]:
    """The number of dropped packets by reason, since the rules were last put in place; empty while the rules are
    missing."""
    with NetlinkSocket(NETLINK_NETFILTER) as rules:
        found = {
            name: packets
            for table in (table_name(node_id), egress_table(node_id))
            for body in rules.dump(list_counters(table))
            for name, packets in read_counters(body)
        }
    return {reason: found[reason] for reason in REASONS if reason in found}
