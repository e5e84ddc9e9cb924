"""Addresses that this host has for a while: at the interface with its own address, and told to everybody in the
network, so that no neighbour goes on sending to who had them before (RFC 5227 for IPv4, RFC 4861, 7.2.6, for IPv6).

What is held is in a file before it is at the interface: who comes after a daemon that was killed finds it.
"""

import socket
import struct
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface
from pathlib import Path

from hawker.host.links import add_address, addresses, delete_address
from hawker.host.netlink import NetlinkSocket

_ARP, _EVERYBODY, _NOBODY = 0x0806, b"\xff" * 6, bytes(6)
_ARP_HEAD = struct.Struct("!HHBBH")  # hardware, protocol, sizes of their addresses, operation
_ASKS, _ANSWERS = 1, 2
_ADVERTISEMENT = struct.Struct("!BBHI")  # type, code, checksum (the kernel's), flags
_NA, _OVERRIDE = 136, 0x2000_0000
_TARGET_LINK = b"\x02\x01"
_ALL_NODES = "ff02::1"
_HOPS = 255


class FloatingDevice:
    """The addresses that this host has for a while. `file` notes them; `own` is the host's address in the network that
    the addresses are of. For worker threads."""

    def __init__(self, file: Path, own: str) -> None:
        self._file = file
        self._own = ip_address(own)

    def held(self) -> frozenset[str]:
        """The noted addresses that are at an interface now: a host that began anew has none, whatever the file says."""
        noted = self._noted()
        if not noted:
            return noted
        with NetlinkSocket() as netlink:
            there = addresses(netlink)
        return frozenset(each for each in noted if ip_address(each) in there)

    def take(self, address: str) -> None:
        """Note an address, put it at the interface and tell the neighbours. A repeated call does no harm. Raises
        `OSError`."""
        self._write(self._noted() | {address})
        with NetlinkSocket() as netlink:
            there = addresses(netlink)
            if ip_address(address) not in there:
                netlink.apply([add_address(self._index(there), ip_interface(address))])
        self.tell(address)

    def drop(self, address: str) -> None:
        """Take an address from the interface, and note it no more. Raises `OSError`."""
        with NetlinkSocket() as netlink:
            index = addresses(netlink).get(ip_address(address))
            if index is not None:
                netlink.apply([delete_address(index, ip_interface(address))])
        self._write(self._noted() - {address})

    def tell(self, address: str) -> None:
        """Tell the neighbours that the address is here. Raises `OSError`."""
        with NetlinkSocket() as netlink:
            index = self._index(addresses(netlink))
        name = socket.if_indextoname(index)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind((name, 0))
            mac = bytes(raw.getsockname()[4])
            what = ip_address(address)
            if isinstance(what, IPv4Address):
                for frame in arp_frames(mac, what):
                    raw.send(frame)
        if isinstance(what, IPv6Address):
            _advertise(index, mac, what)

    def _noted(self) -> frozenset[str]:
        try:
            return frozenset(self._file.read_text(encoding="ascii").split())
        except FileNotFoundError:
            return frozenset()

    def _index(self, there: Mapping[IPv4Address | IPv6Address, int]) -> int:
        index = there.get(self._own)
        if index is None:
            raise OSError(f"no interface has the address {self._own}")
        return index

    def _write(self, noted: Iterable[str]) -> None:
        there = sorted(noted)
        if there:
            fresh = self._file.with_suffix(".new")
            fresh.write_text("".join(f"{each}\n" for each in there), encoding="ascii")
            fresh.replace(self._file)
        else:
            self._file.unlink(missing_ok=True)


def arp_frames(mac: bytes, address: IPv4Address) -> tuple[bytes, ...]:
    """The announcement of an address as a question and as an answer: some neighbours hear only one of them."""
    link = _EVERYBODY + mac + _ARP.to_bytes(2, "big")
    ends = {_ASKS: (_NOBODY, address.packed), _ANSWERS: (_EVERYBODY, address.packed)}
    return tuple(
        link + _ARP_HEAD.pack(1, 0x0800, 6, 4, kind) + mac + address.packed + target + same
        for kind, (target, same) in ends.items()
    )


def _advertise(index: int, mac: bytes, address: IPv6Address) -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as raw:
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, _HOPS)
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        raw.bind((str(address), 0, 0, index))
        message = _ADVERTISEMENT.pack(_NA, 0, 0, _OVERRIDE) + address.packed + _TARGET_LINK + mac
        raw.sendto(message, (_ALL_NODES, 0, 0, index))


def release_all(file: Path) -> None:
    """Drop all addresses of a node that will not come back. Raises `OSError`."""
    device = FloatingDevice(file, "::")
    for address in device.held():
        device.drop(address)
