"""Facts about filters, seen with real sockets from inside real namespaces."""

import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import pytest

from hawker.errors import Fault
from hawker.host import netns, nft_messages
from hawker.host.address import bridge_name
from hawker.host.machine_link import NetworkPlan
from hawker.host.netlink import NETLINK_NETFILTER, NetlinkSocket
from hawker.host.network import NodeNetwork
from hawker.host.network_policy import FilteredPort, FilteredPorts, NodePacketFilters, PacketFilter, mark, policy_table
from hawker.ids import MachineId, NodeId
from tests.waiting import eventually

T = TypeVar("T")
pytestmark = [pytest.mark.root, pytest.mark.anyio]

WEB, OTHER = 8080, 8081
_TENTATIVE = 0x40
_HEADER = 4  # bytes of `nfgenmsg`
QUIET_S = 0.3  # how long what must not get through is waited for
LONG_S = 30.0  # and what must
ONLY_WEB: FilteredPorts = frozenset({FilteredPort("tcp", WEB)})
NOTHING: FilteredPorts = frozenset()


class Machine:
    """A namespace with its addresses, and what can be done in it."""

    def __init__(self, plan: NetworkPlan, path: Path) -> None:
        self.plan, self.path = plan, path
        self.ipv6, self.ipv4 = str(plan.ipv6), str(plan.ipv4)

    def packet_filter(
        self, *, ingress: FilteredPorts | None = None, egress: FilteredPorts | None = None
    ) -> PacketFilter:
        plan = self.plan
        return PacketFilter(plan.machine_id, plan.network_id, plan.ipv4, ingress=ingress, egress=egress)

    async def listen(self, address: str, port: int) -> socket.socket:
        return await self._inside(partial(_listen, address, port))

    async def reaches(self, address: str, port: int) -> bool:
        return await self._inside(partial(_reached, address, port))

    async def kept_from(self, address: str, port: int) -> bool:
        return not await self._inside(partial(_reached, address, port, QUIET_S))

    async def datagram(self, target: tuple[object, ...], source: str | None = None) -> None:
        await self._inside(partial(_send, target, source))

    async def link_local(self) -> tuple[str, int]:
        """Once it may be used."""
        found = await eventually(partial(self._inside, _link_local))
        assert found is not None
        return found

    async def _inside(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(netns.inside, self.path, work)


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family)


def _reached(address: str, port: int, timeout_s: float = LONG_S) -> bool:
    try:
        socket.create_connection((address, port), timeout=timeout_s).close()
    except TimeoutError:
        return False
    return True


def _receiver(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    found.bind(("::", port))
    return found


def _send(target: tuple[object, ...], source: str | None) -> None:
    family = socket.AF_INET6 if ":" in str(target[0]) else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        if source is not None:
            sender.setsockopt(socket.SOL_IP, 15, 1)  # IP_FREEBIND: an address of somebody else, without any right
            sender.bind((source, 0))
        sender.sendto(b"hello", target)


def _link_local() -> tuple[str, int] | None:
    """The address that eth0 gave itself, and its index; None while it still asks whether somebody has it."""
    for line in Path("/proc/thread-self/net/if_inet6").read_text().splitlines():
        digits, index, _, _, flags, name = line.split()
        if name == "eth0" and digits.startswith("fe80") and not int(flags, 16) & _TENTATIVE:
            return ":".join(digits[at : at + 4] for at in range(0, 32, 4)), int(index, 16)
    return None


def _heard(receiver: socket.socket, timeout_s: float) -> bool:
    receiver.settimeout(timeout_s)
    try:
        return receiver.recv(100) == b"hello"
    except TimeoutError:
        return False


async def hears(receiver: socket.socket) -> bool:
    return await anyio.to_thread.run_sync(_heard, receiver, LONG_S)


async def hears_nothing(receiver: socket.socket) -> bool:
    return not await anyio.to_thread.run_sync(_heard, receiver, QUIET_S)


@pytest.fixture
def filters(network: NodeNetwork) -> NodePacketFilters:
    return NodePacketFilters(network.node_id)


async def _machine(network: NodeNetwork, ipv4: str) -> Machine:
    plan = NetworkPlan(MachineId(secrets.token_hex(7)), 7, IPv4Address(ipv4))
    return Machine(plan, await network.ensure(plan))


@pytest.fixture
async def shop(network: NodeNetwork) -> Machine:
    return await _machine(network, "10.213.0.1")


@pytest.fixture
async def friend(network: NodeNetwork) -> Machine:
    return await _machine(network, "10.213.0.2")


@pytest.fixture
async def open_ports(shop: Machine) -> AsyncIterator[None]:
    """The shop's machine listens on two ports of both families."""
    servers = [await shop.listen(address, port) for address in ("::", "0.0.0.0") for port in (WEB, OTHER)]
    yield
    for server in servers:
        server.close()


@pytest.mark.usefixtures("open_ports")
async def test_only_what_is_allowed_gets_in_over_both_families(
    shop: Machine, friend: Machine, filters: NodePacketFilters
) -> None:
    for address in (shop.ipv6, shop.ipv4):
        assert await friend.reaches(address, OTHER)
    await filters.install_filters([shop.packet_filter(ingress=ONLY_WEB)])
    for address in (shop.ipv6, shop.ipv4):
        assert await friend.reaches(address, WEB)
        assert await friend.kept_from(address, OTHER)
    await filters.install_filters([])
    assert await friend.reaches(shop.ipv6, OTHER)


@pytest.mark.usefixtures("open_ports")
async def test_only_what_is_allowed_gets_out_over_both_families(
    shop: Machine, friend: Machine, filters: NodePacketFilters
) -> None:
    await filters.install_filters([friend.packet_filter(egress=ONLY_WEB)])
    for address in (shop.ipv6, shop.ipv4):
        assert await friend.reaches(address, WEB)
        assert await friend.kept_from(address, OTHER)


@pytest.mark.usefixtures("open_ports")
async def test_packet_within_a_network_has_to_pass_both_filters(
    shop: Machine, friend: Machine, filters: NodePacketFilters
) -> None:
    both = frozenset({FilteredPort("tcp", WEB), FilteredPort("tcp", OTHER)})
    await filters.install_filters([shop.packet_filter(ingress=ONLY_WEB), friend.packet_filter(egress=both)])
    assert await friend.reaches(shop.ipv6, WEB) and await friend.kept_from(shop.ipv6, OTHER)


@pytest.mark.usefixtures("open_ports")
async def test_a_filter_in_one_direction_leaves_the_other_open(
    shop: Machine, friend: Machine, filters: NodePacketFilters
) -> None:
    with await friend.listen("::", WEB):
        await filters.install_filters([shop.packet_filter(ingress=NOTHING)])
        assert await friend.kept_from(shop.ipv6, WEB)
        assert await shop.reaches(friend.ipv6, WEB)


@pytest.mark.usefixtures("open_ports")
async def test_the_host_still_reaches_a_machine_that_lets_nobody_in(shop: Machine, filters: NodePacketFilters) -> None:
    """Its health checks do, and the edge."""
    await filters.install_filters([shop.packet_filter(ingress=NOTHING, egress=NOTHING)])
    assert await anyio.to_thread.run_sync(_reached, shop.ipv6, WEB)
    assert await anyio.to_thread.run_sync(_reached, shop.ipv4, WEB)


async def test_a_connection_that_is_open_goes_on(shop: Machine, friend: Machine, filters: NodePacketFilters) -> None:
    def dial() -> socket.socket:
        return socket.create_connection((shop.ipv6, WEB), timeout=LONG_S)

    with await shop.listen("::", WEB) as server:
        client = await anyio.to_thread.run_sync(netns.inside, friend.path, dial)
        connection, _ = await anyio.to_thread.run_sync(server.accept)
        await filters.install_filters([shop.packet_filter(ingress=NOTHING, egress=NOTHING)])
        client.sendall(b"still here")
        connection.settimeout(LONG_S)
        assert await anyio.to_thread.run_sync(connection.recv, 100) == b"still here"
        client.close()
        connection.close()


async def test_a_machine_cannot_get_past_a_filter_beside_it(
    shop: Machine, friend: Machine, filters: NodePacketFilters
) -> None:
    """By link-local addresses, by multicast, by broadcast, or with somebody else's address as its own."""
    receiver = await anyio.to_thread.run_sync(netns.inside, shop.path, partial(_receiver, WEB))
    local, _ = await shop.link_local()
    _, index = await friend.link_local()
    ways: list[tuple[object, ...]] = [
        (local, WEB, 0, index),
        ("ff02::1", WEB, 0, index),
        ("255.255.255.255", WEB),
        (shop.ipv6, WEB),
        (shop.ipv4, WEB),
    ]
    with receiver:
        for way in ways:
            await friend.datagram(way)
            assert await hears(receiver), way
        await filters.install_filters([shop.packet_filter(ingress=NOTHING)])
        for way in ways:
            with suppress(OSError):
                await friend.datagram(way)
            assert await hears_nothing(receiver), way


async def test_a_machine_cannot_send_as_another_one(
    network: NodeNetwork, shop: Machine, friend: Machine, filters: NodePacketFilters
) -> None:
    third = await _machine(network, "10.213.0.3")
    receiver = await anyio.to_thread.run_sync(netns.inside, shop.path, partial(_receiver, WEB))
    with receiver:
        await filters.install_filters([friend.packet_filter(egress=NOTHING)])
        for source in (None, third.ipv6):
            with suppress(OSError):
                await friend.datagram((shop.ipv6, WEB), source)
            assert await hears_nothing(receiver), source
        await third.datagram((shop.ipv6, WEB))
        assert await hears(receiver)


async def test_neighbours_are_still_found(network: NodeNetwork, shop: Machine, filters: NodePacketFilters) -> None:
    """A machine that comes later has to ask for the link address first."""
    await filters.install_filters([shop.packet_filter(ingress=ONLY_WEB, egress=NOTHING)])
    late = await _machine(network, "10.213.0.4")
    with await shop.listen("::", WEB):
        assert await late.reaches(shop.ipv6, WEB)


async def test_raising_the_same_filters_again_touches_nothing(
    network: NodeNetwork, shop: Machine, filters: NodePacketFilters
) -> None:
    wanted = [shop.packet_filter(ingress=ONLY_WEB)]
    assert not await filters.in_force(wanted) and await filters.in_force([])
    await filters.install_filters(wanted)
    assert await filters.in_force(wanted) and not await filters.in_force([])
    before = await _handle(network.node_id, wanted)
    await filters.install_filters(wanted)
    assert await _handle(network.node_id, wanted) == before
    await filters.install_filters([])
    assert await filters.in_force([])


async def _handle(node: NodeId, wanted: list[PacketFilter]) -> bytes:
    """What the kernel answers about the chain that is the mark; a chain made anew has another number. Without the
    header, which counts the changes of all tables of the host."""
    with NetlinkSocket(NETLINK_NETFILTER) as rules:
        return rules.ask(nft_messages.look_up_chain(policy_table(node), mark(wanted)))[_HEADER:]


async def test_rules_removed_by_others_are_seen(
    network: NodeNetwork, shop: Machine, filters: NodePacketFilters
) -> None:
    wanted = [shop.packet_filter(ingress=ONLY_WEB)]
    await filters.install_filters(wanted)
    with NetlinkSocket(NETLINK_NETFILTER) as rules:
        rules.apply(nft_messages.remove_table(policy_table(network.node_id)))
    assert not await filters.in_force(wanted)
    await filters.install_filters(wanted)
    switch = Path("/sys/class/net") / bridge_name(network.node_id, 7) / "bridge/nf_call_ip6tables"
    switch.write_text("0")
    assert not await filters.in_force(wanted)
    await filters.install_filters(wanted)
    assert await filters.in_force(wanted) and switch.read_text().strip() == "1"


async def test_reading_the_nodes_rules_again_leaves_filters_alone(
    network: NodeNetwork, shop: Machine, filters: NodePacketFilters
) -> None:
    wanted = [shop.packet_filter(ingress=ONLY_WEB)]
    await filters.install_filters(wanted)
    await network.guard()
    assert await filters.in_force(wanted)


async def test_a_thousand_machines_with_many_ports_are_one_transaction(
    filters: NodePacketFilters, shop: Machine
) -> None:
    ports = [
        frozenset(FilteredPort("tcp", number) for number in range(start, start + 256)) for start in range(1, 9000, 900)
    ]
    machines = [
        PacketFilter(
            MachineId(f"{number:014x}"),
            7,
            IPv4Address(f"10.9.{number >> 8}.{number & 255}"),
            ingress=ports[number % 10],
        )
        for number in range(1, 1001)
    ]
    await filters.install_filters(machines)
    assert await filters.in_force(machines)
    await filters.install_filters(machines[:-1])
    assert not await filters.in_force(machines) and await filters.in_force(machines[:-1])


async def test_a_host_whose_kernel_shows_nothing_says_so(network: NodeNetwork, shop: Machine, tmp_path: Path) -> None:
    for load in (("true",), ("/nonexistent/modprobe",)):
        filters = NodePacketFilters(network.node_id, tmp_path / "bridge", load)
        assert "modprobe br_netfilter" in await filters.lack_of_filters()
        with pytest.raises(Fault, match="not in force"):
            await filters.install_filters([shop.packet_filter(ingress=ONLY_WEB)])
        await filters.install_filters([])


async def test_loading_what_is_missing_leaves_other_bridges_as_they_were(network: NodeNetwork, tmp_path: Path) -> None:
    switches = tmp_path / "bridge"
    script = f"mkdir {switches} && echo 1 > {switches}/bridge-nf-call-iptables"
    filters = NodePacketFilters(network.node_id, switches, ("sh", "-c", script))
    assert await filters.lack_of_filters() == ""
    assert (switches / "bridge-nf-call-iptables").read_text() == "0"
    assert await filters.lack_of_filters() == ""
