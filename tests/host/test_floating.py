"""Addresses that a host has for a while: at the right interface, noted before, and told to the neighbours."""

import socket
from contextlib import closing
from ipaddress import IPv4Address, ip_address
from pathlib import Path

import pytest

from hawker.host import links, netns
from hawker.host.floating import FloatingDevice, arp_frames, release_all
from hawker.host.netlink import NetlinkSocket
from tests.waiting import wait_for

pytestmark = [pytest.mark.anyio, pytest.mark.root]
OWN, NEAR = "198.51.100.2", "198.51.100.1"
FOUR, SIX = "198.51.100.77", "2001:db8:77::77"


def there(outside: Path) -> set[str]:
    def read() -> set[str]:
        with NetlinkSocket() as netlink:
            return {str(each) for each in links.addresses(netlink)}

    return netns.inside(outside, read)


def neighbour() -> socket.socket:
    """Hears what comes to the other end of the link."""
    with NetlinkSocket() as netlink:
        index = links.addresses(netlink)[ip_address(NEAR)]
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(3))
    raw.bind((socket.if_indextoname(index), 3))
    return raw


@pytest.mark.parametrize("address", [FOUR, SIX])
async def test_an_address_is_taken_told_and_dropped(outside: Path, tmp_path: Path, address: str) -> None:
    device, packed = FloatingDevice(tmp_path / "floating", OWN), ip_address(address).packed
    with closing(neighbour()) as raw:
        netns.inside(outside, lambda: device.take(address))
        assert address in there(outside) and netns.inside(outside, device.held) == {address}

        def told() -> bool:
            try:
                frame = raw.recv(2000)
            except BlockingIOError:
                return False
            kind = int.from_bytes(frame[12:14], "big")
            return packed in frame and (kind == 0x0806 or (kind == 0x86DD and frame[54:55] == b"\x88"))

        wait_for(told)
    netns.inside(outside, lambda: device.take(address))
    netns.inside(outside, lambda: device.drop(address))
    assert address not in there(outside) and not (tmp_path / "floating").exists()
    netns.inside(outside, lambda: device.drop(address))


async def test_addresses_that_a_killed_node_has_left_are_found_and_a_host_that_began_anew_has_none(
    outside: Path, tmp_path: Path
) -> None:
    file = tmp_path / "floating"
    for each in (FOUR, SIX):
        netns.inside(outside, lambda: FloatingDevice(file, OWN).take(each))  # noqa: B023
    assert netns.inside(outside, FloatingDevice(file, OWN).held) == {FOUR, SIX}
    netns.inside(outside, lambda: release_all(file))
    assert not {FOUR, SIX} & there(outside) and not file.exists()
    file.write_text(f"{FOUR}\n")
    assert netns.inside(outside, FloatingDevice(file, OWN).held) == frozenset()


async def test_a_host_without_its_own_address_takes_none(outside: Path, tmp_path: Path) -> None:
    device = FloatingDevice(tmp_path / "floating", "203.0.113.1")
    with pytest.raises(OSError, match="no interface has the address"):
        netns.inside(outside, lambda: device.take(FOUR))
    assert FOUR not in there(outside)


def test_an_announcement_says_the_same_of_sender_and_target() -> None:
    mac, address = b"\x06\0\0\0\0\1", IPv4Address(FOUR)
    for frame in arp_frames(mac, address):
        assert frame[:6] == b"\xff" * 6 and frame[6:12] == mac and len(frame) == 42
        assert frame[28:32] == frame[38:42] == address.packed
