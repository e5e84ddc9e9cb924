"""Where a machine is plugged in, and what its network namespace holds: the far end of its link, how the machine is
reached by it, and the kernel's switches (sysctl) for it.

A machine with the host's kernel has the link itself, as `eth0` (`WiredLink`). The link of one with a kernel of its own
is bridged to a tap, at whose other end a virtual machine monitor has the frames of its guest (`TappedLink`). A bridge,
since the guest's frames then go the way of all frames; it learns nothing, so no guest fills its tables.
All of it runs in the namespace, in a thread that has entered it, and is idempotent.
"""

import errno
import fcntl
import os
import re
import socket
import struct
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from pathlib import Path
from typing import Protocol

from hawker.errors import CannotStart
from hawker.host import links, netns
from hawker.host.address import (
    GATEWAY4,
    PRIVATE,
    gateway,
    inner_mac,
    machine_mac,
    machine_prefix,
    network_prefix,
    private_ip,
    tap_mac,
    uplink_mac,
)
from hawker.host.links import index_of
from hawker.host.netlink import NetlinkRequest, NetlinkSocket
from hawker.ids import MachineId
from hawker.value_object import ValueObject


class NetworkPlan(ValueObject, frozen=True):
    """A machine's place in its private network. `network_id` has 32 bits; `ipv4` comes from the caller's pool and
    serves outbound traffic only; None: IPv6 alone."""

    machine_id: MachineId
    network_id: int
    ipv4: IPv4Address | None = None

    @property
    def label(self) -> str:
        """The text written on the machine's link, which tells the machine, the network and the IPv4 address."""
        return f"{self.machine_id} {self.network_id:08x} {self.ipv4 or '-'}"

    @property
    def ipv6(self) -> IPv6Address:
        return private_ip(self.network_id, self.machine_id)


_LABEL = re.compile(r"([0-9a-f]{14}) ([0-9a-f]{8}) (-|[0-9.]{7,15})")


def read_label(text: str | None) -> NetworkPlan | None:
    """The plan in the text on a link; None for a text that is no label of ours."""
    found = _LABEL.fullmatch(text or "")
    if found is None:
        return None
    try:
        ipv4 = None if found[3] == "-" else IPv4Address(found[3])
    except ValueError:
        return None
    return NetworkPlan(MachineId(found[1]), int(found[2], 16), ipv4)


_NET = Path("/proc/sys/net")
_ACCEPT_RA_EVEN_WHEN_FORWARDING = "2"
_ANSWER_FOR_NOBODY = "8"


def allow_forwarding() -> None:
    """Let the host route. A Linux host that routes ignores router advertisements and would lose its own IPv6 default
    route, so interfaces that listen to them are told to go on listening. Raises `CannotStart`."""
    try:
        if _read("ipv6/conf/all/forwarding") == "0":
            _keep_listening_to_routers()
            _write("ipv6/conf/all/forwarding", "1")
        _write("ipv4/ip_forward", "1")
    except FileNotFoundError as error:
        raise CannotStart("IPv6 is disabled on this host: boot the kernel without ipv6.disable=1") from error
    except OSError as error:
        raise CannotStart(f"cannot turn on packet forwarding ({error.strerror}): run as root") from error


def prepare_bridge(name: str) -> None:
    """Let the host accept no router advertisements on this bridge: machines are no routers to the host."""
    _write(f"ipv6/conf/{name}/accept_ra", "0")


def prepare_machine() -> None:
    """Set the switches in a machine's fresh namespace, before its link is there: believe no neighbour that claims to be
    a router, and let any user ping and listen on low ports, for which root would else be needed."""
    _write("ipv6/conf/default/accept_ra", "0")
    _write("ipv6/conf/default/accept_redirects", "0")
    _write("ipv4/ip_unprivileged_port_start", "0")
    _write("ipv4/ping_group_range", "0 2147483647")


def silence() -> None:
    """Set the switches in the fresh namespace of a machine with a kernel of its own: frames pass it by, and none is
    answered or shown to packet rules."""
    for which in ("all", "default"):
        _write(f"ipv6/conf/{which}/disable_ipv6", "1")
        _write(f"ipv4/conf/{which}/arp_ignore", _ANSWER_FOR_NOBODY)
    for switch in (_NET / "bridge").glob("bridge-nf-call-*"):
        switch.write_text("0")


def _keep_listening_to_routers() -> None:
    for interface in (_NET / "ipv6/conf").iterdir():
        key = f"ipv6/conf/{interface.name}/accept_ra"
        if interface.name not in ("all", "default") and _read(key) == "1":
            _write(key, _ACCEPT_RA_EVEN_WHEN_FORWARDING)


def _read(key: str) -> str:
    return (_NET / key).read_text().strip()


def _write(key: str, value: str) -> None:
    (_NET / key).write_text(value)


_DEVICE = Path("/dev/net/tun")
_TUNSETIFF, _TUNSETPERSIST, _TUNSETOWNER = 0x400454CA, 0x400454CB, 0x400454CC
_TAP, _NO_PACKET_INFO, _VIRTIO_HEADER = 0x0002, 0x1000, 0x4000

MESH_MTU = 1420
"""The most bytes of a packet between hosts inside a tunnel of WireGuard over IPv6, which takes 80 bytes of 1500."""
MACHINE_LINK = "eth0"
TAP = "tap0"
_BRIDGE = "br0"
_LOOPBACK_INDEX = 1
_NETWORK_BITS = 48
_SIOCGIFADDR = 0x8915


def ensure_tap(name: str, owner: int) -> int:
    """The index of a tap in the calling thread's namespace that stays when nobody has it open. User `owner` may attach
    to it without any privilege. A tap that is there already, and maybe attached to, is left as it is."""
    if index_of(name) is None:
        tap = attach(name)
        try:
            fcntl.ioctl(tap, _TUNSETOWNER, owner)
            fcntl.ioctl(tap, _TUNSETPERSIST, 1)
        finally:
            os.close(tap)
    index = index_of(name)
    assert index is not None, "the tap was just made"
    return index


def attach(name: str) -> int:
    """A file descriptor that carries the tap's frames, each behind a virtio header; makes a tap that is not there.
    Raises `CannotStart` when the host has no taps, and as `join`."""
    tap = open_taps()
    try:
        join(tap, name)
    except OSError:
        os.close(tap)
        raise
    return tap


def open_taps(device: Path = _DEVICE) -> int:
    """A descriptor that becomes a tap by `join`. Raises `CannotStart` when the host has no taps."""
    try:
        return os.open(device, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise
        raise CannotStart(f"this host's kernel has no taps ({device}): modprobe tun") from error


def join(tap: int, name: str, *, header: bool = True) -> None:
    """Make an open descriptor the tap `name`; with `header` each frame is behind a virtio header. Raises `OSError`:
    EBUSY when somebody is attached to that tap already, EPERM when it is another user's."""
    flags = _TAP | _NO_PACKET_INFO | (_VIRTIO_HEADER if header else 0)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))


class MachineLink(Protocol):
    """The end of the network in the namespace of one kind of machine."""

    def mac(self, machine_id: MachineId) -> str:
        """The link address of the link's far end, in the machine's namespace."""

    def prepare(self) -> None:
        """Set the switches in a fresh namespace, before its link is there."""

    def configure(self, plan: NetworkPlan) -> None:
        """Put the addresses and routes in place, when the link is there."""

    def fits(self) -> bool:
        """Whether the calling thread's namespace was made for this kind of machine."""

    def lacks(self, namespace: Path) -> str:
        """The part that the namespace lacks beside the link itself, in a sentence; "" when it lacks nothing. Called
        from outside."""


class WiredLink:
    """The link of machines with the host's kernel. Packets to their private networks have at most `mtu` bytes."""

    def __init__(self, mtu: int = MESH_MTU) -> None:
        self._mtu = mtu

    def mac(self, machine_id: MachineId) -> str:
        return machine_mac(machine_id)

    def prepare(self) -> None:
        prepare_machine()

    def configure(self, plan: NetworkPlan) -> None:
        with NetlinkSocket() as machine:
            machine.apply(addressed(plan, _index(MACHINE_LINK), self._mtu))

    def fits(self) -> bool:
        return links.index_of(TAP) is None

    def lacks(self, namespace: Path) -> str:
        """Links of an older hawker take the whole network for neighbours, and so find nobody on another host."""
        whole = netns.inside(namespace, _whole_network)
        return "its link takes all of its private network for neighbours" if whole else ""


class TappedLink(ValueObject, frozen=True):
    """The link of machines with kernels of their own. `owner` gives the number of the user that may attach to a
    machine's tap."""

    owner: Callable[[MachineId], int]

    def mac(self, machine_id: MachineId) -> str:
        return uplink_mac(machine_id)

    def prepare(self) -> None:
        silence()

    def configure(self, plan: NetworkPlan) -> None:
        machine_id = plan.machine_id
        tap = ensure_tap(TAP, self.owner(machine_id))
        with NetlinkSocket() as here:
            here.apply([links.add_bridge(_BRIDGE, inner_mac(machine_id))])
            bridge = _index(_BRIDGE)
            here.apply([links.set_mac(tap, tap_mac(machine_id)), links.link_up(bridge)])
            for port in (_index(MACHINE_LINK), tap):
                here.apply([links.join_bridge(port, bridge), links.learn_nothing(port)])

    def fits(self) -> bool:
        return links.index_of(TAP) is not None

    def lacks(self, namespace: Path) -> str:
        there = {link.name: link for link in netns.inside(namespace, _links)}
        if TAP not in there:
            return "its tap is gone"
        bridge = there.get(_BRIDGE)
        if bridge is None or any(there[name].master != bridge.index for name in (TAP, MACHINE_LINK) if name in there):
            return "its tap is not in one bridge with its link"
        return ""


def _links() -> list[links.HostLink]:
    with NetlinkSocket() as here:
        return links.links(here)


def _index(name: str) -> int:
    index = links.index_of(name)
    assert index is not None, f"{name} is there"
    return index


def addressed(plan: NetworkPlan, index: int, mtu: int = MESH_MTU) -> list[NetlinkRequest]:
    """Requests that put the machine's addresses and routes on its link. In its network the gateway alone is a
    neighbour."""
    requests = [links.link_up(_LOOPBACK_INDEX), links.link_up(index)]
    requests += [links.add_address(index, address) for address in addresses(plan)]
    requests += [links.add_route(_DEFAULT6 if ":" in via else _DEFAULT4, index, via=via) for via in gateways(plan)]
    requests.append(links.add_route(_ALL_PRIVATE, index, via=str(gateway(plan.network_id)), mtu=mtu))
    return [*requests, links.delete_route(IPv6Interface(network_prefix(plan.network_id).with_prefixlen), index)]


_DEFAULT4, _DEFAULT6 = IPv4Interface("0.0.0.0/0"), IPv6Interface("::/0")
_ALL_PRIVATE = IPv6Interface(PRIVATE.with_prefixlen)
_ROUTES = Path("/proc/thread-self/net/ipv6_route")


def _whole_network() -> bool:
    """Whether a /48 of private addresses is on the link: destination, prefix length in hex, ..., interface."""
    routes = [line.split() for line in _ROUTES.read_text().splitlines()]
    return any(
        route[0].startswith("fdaa") and int(route[1], 16) == _NETWORK_BITS and route[-1] == MACHINE_LINK
        for route in routes
    )


def addresses(plan: NetworkPlan) -> tuple[IPv4Interface | IPv6Interface, ...]:
    """The addresses that the machine has on its link, whether the host or the guest puts them there."""
    own = IPv6Interface((plan.ipv6, machine_prefix(plan.network_id, plan.machine_id).prefixlen))
    return (own,) if plan.ipv4 is None else (own, IPv4Interface(plan.ipv4))


def gateways(plan: NetworkPlan) -> tuple[str, ...]:
    """The gateways of the machine's default routes; none need be in a network of the link."""
    return (str(gateway(plan.network_id)),) + (() if plan.ipv4 is None else (str(GATEWAY4),))


def far_end() -> int | None:
    """The index of the link's other end, on the host; None without a link."""
    index = links.index_of(MACHINE_LINK)
    if index is None:
        return None
    with NetlinkSocket() as here:
        return links.other_end_of(here, index)


def ipv4() -> IPv4Address | None:
    """The IPv4 address of the link in a namespace of a machine with the host's kernel; None without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("16s24x", MACHINE_LINK.encode()))
        except OSError:
            return None
    return IPv4Address(answer[20:24])
