"""Frames made by hand, true and forged, of one machine that means harm to another."""

import socket
import struct
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from hawker.host.address import GATEWAY4, gateway, machine_link_local, machine_mac, machine_prefix
from hawker.host.machine_link import NetworkPlan

_ICMP6, _UDP, _DESTINATION_OPTIONS = 58, 17, 60
_NONCE = 14
_PATIENCE_S = 60.0
_ALL_NODES = IPv6Address("ff02::1")


def _bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@dataclass(frozen=True, slots=True)
class Forger:
    """`own` sends to `victim`; `third` is a machine of the same network that it takes for itself. Every frame carries
    `mark`."""

    own: NetworkPlan
    victim: NetworkPlan
    third: NetworkPlan
    mark: bytes = b"forged by nobody else"

    def true(self) -> dict[str, bytes]:
        """What a machine may send."""
        own, mac = self.own, self._mac(self.own)
        spare = machine_prefix(own.network_id, own.machine_id)[77]
        local = machine_link_local(own.machine_id)
        return {
            "as itself": self.ipv6(own.ipv6),
            "from another address of its own": self.ipv6(spare),
            "from its link-local address": self.ipv6(local),
            "as itself over IPv4": self.ipv4(own.ipv4),
            "who has the victim's address": self.arp(1, mac, own.ipv4),
            "that it has its IPv4 address": self.arp(2, mac, own.ipv4),
            "that it has its IPv6 address": self.neighbour(own.ipv6, own.ipv6),
            "that it has its link-local address": self.neighbour(local, local),
            "whether somebody has the address it is about to take": self.solicitation(IPv6Address("::"), own.ipv6),
        }

    def forged(self) -> dict[str, bytes]:
        own, third, mac = self.own, self.third, self._mac(self.own)
        local, theirs = machine_link_local(own.machine_id), machine_link_local(third.machine_id)
        router = gateway(own.network_id)
        foreign = b"\x06\xff\xff\xff\xff\xff"
        return {
            "from a link address of nobody": self.ipv6(own.ipv6, mac=foreign),
            "from another machine's link address": self.ipv6(third.ipv6, mac=self._mac(third)),
            "as another machine": self.ipv6(third.ipv6),
            "as another machine's link-local address": self.ipv6(theirs),
            "as the gateway": self.ipv6(router),
            "as somebody outside": self.ipv6(IPv6Address("2001:db8::1")),
            "as nobody": self.ipv6(IPv6Address("::")),
            "as another machine over IPv4": self.ipv4(third.ipv4),
            "as the gateway over IPv4": self.ipv4(GATEWAY4),
            "as nobody over IPv4": self.ipv4(IPv4Address("0.0.0.0")),
            "that it has the gateway's IPv4 address": self.arp(2, mac, GATEWAY4),
            "that it has another machine's IPv4 address": self.arp(2, mac, third.ipv4),
            "as somebody who asks from another's IPv4 address": self.arp(1, mac, third.ipv4),
            "that another machine has its IPv4 address": self.arp(2, self._mac(third), own.ipv4),
            "that it has the gateway's address": self.neighbour(own.ipv6, router),
            "that it has another machine's address": self.neighbour(local, third.ipv6),
            "that it has another machine's link-local address": self.neighbour(own.ipv6, theirs),
            "the same behind options": self.neighbour(own.ipv6, third.ipv6, behind_options=True),
            "as another machine that it has its address": self.neighbour(third.ipv6, third.ipv6),
            "that another's address is taken": self.solicitation(IPv6Address("::"), third.ipv6),
            "that it is a router": self.icmp6(local, 134, struct.pack("!BBHII", 64, 0, 1800, 0, 0)),
            "that it knows a better router": self.icmp6(local, 137, bytes(4) + local.packed + router.packed),
            "an address by DHCP": self.ipv4(own.ipv4, ports=(67, 68)),
            "an address by DHCPv6": self.ipv6(local, ports=(547, 546)),
            "with a VLAN tag": self._frame(0x8100, struct.pack("!HH", 7, 0x86DD) + self.ipv6(third.ipv6)[14:]),
            "with two VLAN tags": self._frame(0x88A8, struct.pack("!HHHH", 7, 0x8100, 7, 0x86DD) + self.mark),
            "about the link layer": self._frame(0x88CC, bytes(46) + self.mark),
            "no Ethernet at all": self._frame(60, b"\x42\x42\x03" + bytes(40) + self.mark),
        }

    def ipv6(self, source: IPv6Address, *, mac: bytes | None = None, ports: tuple[int, int] = (4000, 4001)) -> bytes:
        return self._frame(0x86DD, self._packet6(source, self.victim.ipv6, _UDP, self._datagram(ports)), mac=mac)

    def ipv4(self, source: IPv4Address | None, *, ports: tuple[int, int] = (4000, 4001)) -> bytes:
        assert source is not None and self.victim.ipv4 is not None
        body = self._datagram(ports)
        head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 0, 0, 64, _UDP, 0, source.packed, b"")
        head = head[:16] + self.victim.ipv4.packed
        head = head[:10] + struct.pack("!H", _checksum(head)) + head[12:]
        return self._frame(0x0800, head + body)

    def arp(self, operation: int, mac: bytes, source: IPv4Address | None) -> bytes:
        assert source is not None and self.victim.ipv4 is not None
        who = mac + source.packed + self._mac(self.victim) + self.victim.ipv4.packed
        return self._frame(0x0806, struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation) + who + self.mark)

    def neighbour(self, source: IPv6Address, target: IPv6Address, *, behind_options: bool = False) -> bytes:
        option = b"\x02\x01" + self._mac(self.own)
        return self.icmp6(source, 136, b"\xa0\0\0\0" + target.packed + option, behind_options=behind_options)

    def solicitation(self, source: IPv6Address, target: IPv6Address) -> bytes:
        return self.icmp6(source, 135, bytes(4) + target.packed)

    def icmp6(self, source: IPv6Address, kind: int, rest: bytes, *, behind_options: bool = False) -> bytes:
        """The mark is in an option, since bridges may cut off what follows a packet."""
        units = (len(self.mark) + 9) // 8
        option = struct.pack("!BB", _NONCE, units) + self.mark.ljust(8 * units - 2, b"\0")
        message = struct.pack("!BBH", kind, 0, 0) + rest + option
        pseudo = source.packed + _ALL_NODES.packed + struct.pack("!II", len(message), _ICMP6)
        message = message[:2] + struct.pack("!H", _checksum(pseudo + message)) + message[4:]
        if behind_options:
            message = struct.pack("!BB", _ICMP6, 0) + b"\x01\x04" + bytes(4) + message
        protocol = _DESTINATION_OPTIONS if behind_options else _ICMP6
        return self._frame(0x86DD, self._packet6(source, _ALL_NODES, protocol, message))

    def to_group(self, mac: bytes) -> bytes:
        """To one of the groups of 802.1D, which no bridge hands on."""
        return b"\x01\x80\xc2\0\0\x0e" + mac + struct.pack("!H", 0x88CC) + self.mark

    def _packet6(self, source: IPv6Address, target: IPv6Address, protocol: int, body: bytes) -> bytes:
        return struct.pack("!IHBB", 6 << 28, len(body), protocol, 255) + source.packed + target.packed + body

    def _datagram(self, ports: tuple[int, int]) -> bytes:
        return struct.pack("!HHHH", *ports, 8 + len(self.mark), 0) + self.mark

    def _frame(self, kind: int, payload: bytes, *, mac: bytes | None = None) -> bytes:
        return self._mac(self.victim) + (mac or self._mac(self.own)) + struct.pack("!H", kind) + payload

    def _mac(self, plan: NetworkPlan) -> bytes:
        return _bytes(machine_mac(plan.machine_id))


def send(frame: bytes) -> None:
    """In the namespace of whoever sends it."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind(("eth0", 0))
        raw.send(frame)


def ear() -> socket.socket:
    """Hears every frame that comes to `eth0` of the calling thread's namespace."""
    every = 0x0003
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(every))
    raw.bind(("eth0", every))
    return raw


def heard(raw: socket.socket, marks: Sequence[bytes], last: bytes, awaited: Collection[bytes] = ()) -> set[bytes]:
    """Which of the marks came before the last one, or before those that are to come: frames that were sent from two
    processors may come in another order."""
    raw.settimeout(_PATIENCE_S)
    found: set[bytes] = set()
    with suppress(TimeoutError):
        while not found.issuperset((last, *awaited)):
            frame = raw.recv(4096)
            found.update(mark for mark in (*marks, last) if mark in frame)
    assert last in found, "nothing comes at all"
    return found - {last}
