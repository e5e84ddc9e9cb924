"""Facts about what is withheld from machines: worked out from values, then seen with packets to those addresses."""

import secrets
import socket
from collections.abc import AsyncIterator, Callable
from functools import partial
from ipaddress import IPv4Address, IPv4Interface, IPv6Interface, ip_address, ip_network
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from hawker.errors import Fault
from hawker.host import links, netns
from hawker.host.address import GATEWAY4, gateway
from hawker.host.egress import METADATA, PRIVATE, Egress, Network, egress_mark, parse_allowed, plan_egress
from hawker.host.machine_link import NetworkPlan
from hawker.host.netlink import NETLINK_NETFILTER, NetlinkSocket
from hawker.host.network import NodeNetwork
from hawker.host.network_policy import FilteredPort, NodePacketFilters, PacketFilter
from hawker.host.nft_messages import remove_table
from hawker.ids import MachineId
from tests.node_ids import own_node_id

LAN = ip_network("203.0.113.0/24")
PORT, DNS = 8080, 53
QUIET_S = 0.4  # how long a connection that must not be made is tried


def withheld(address: str, allowed: tuple[str, ...] = (), members: tuple[str, ...] = ()) -> bool:
    plan = plan_egress([LAN], members, parse_allowed(allowed))
    return any(ip_address(address) in network for network in plan.withheld if network.version == _version(address))


def _version(address: str) -> int:
    return ip_address(address).version


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "192.0.0.192"),
        *("fd00:ec2::254", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42", "fe80::a9fe:a9fe"),
        *("10.0.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "fd12::1", "203.0.113.77"),
        *("64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1", "64:ff9b::203.0.113.77", "64:ff9b:1::1"),
    ],
)
def test_metadata_private_networks_and_the_hosts_own_are_withheld_in_every_spelling(address: str) -> None:
    assert withheld(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "203.0.114.1", "172.32.0.1", "2606:4700::1", "64:ff9b::101:101"])
def test_the_rest_of_the_world_is_not_withheld(address: str) -> None:
    assert not withheld(address)


def test_a_wide_range_that_is_allowed_opens_networks_but_neither_metadata_nor_members() -> None:
    opened = ("private", "203.0.113.0/24")
    for address in ("10.0.0.1", "192.168.1.1", "100.64.0.1", "fd12::1", "203.0.113.5", "64:ff9b::10.0.0.1"):
        assert not withheld(address, opened, ("10.9.9.9",))
    for address in ("100.100.100.200", "fd00:ec2::254", "fd20:ce::254", "169.254.169.254", "10.9.9.9"):
        assert withheld(address, opened, ("10.9.9.9",))


def test_metadata_and_members_are_opened_by_their_own_name() -> None:
    opened = ("100.100.100.200", "10.9.9.9/32")
    assert not withheld("100.100.100.200", opened) and withheld("100.100.100.201", opened)
    assert not withheld("10.9.9.9", opened, ("10.9.9.9",)) and withheld("10.9.9.8", opened)


def test_a_part_of_a_network_is_opened_alone() -> None:
    assert not withheld("10.1.2.3", ("10.1.0.0/16",)) and withheld("10.2.0.1", ("10.1.0.0/16",))
    assert not withheld("64:ff9b::10.1.2.3", ("10.1.0.0/16",))


def test_networks_of_a_plan_do_not_overlap() -> None:
    plan = plan_egress([ip_network("10.0.0.0/24"), ip_network("fd00::/64")], ["10.0.0.7", "fd00::7"], ())
    found = [each for each in plan.withheld if each.version == 4]
    assert not any(one != other and one.overlaps(other) for one in found for other in found)


def test_members_and_resolvers_that_are_names_are_left_out() -> None:
    plan = plan_egress([], ["node.example", "203.0.113.9"], (), ["::1", "resolver", "10.0.0.2"])
    assert list(map(str, plan.resolvers)) == ["10.0.0.2", "::1"]
    assert any(ip_address("203.0.113.9") in each for each in plan.withheld if each.version == 4)


def test_every_entry_of_the_tables_is_a_network_with_its_source() -> None:
    for text, source in {**METADATA, **PRIVATE}.items():
        assert str(ip_network(text)) == text and source


def test_an_allowed_word_that_is_no_network_is_refused() -> None:
    with pytest.raises(ValueError, match=r"10\.0\.0\.1/8"):
        parse_allowed(["10.0.0.1/8"])


def test_marks_tell_plans_apart() -> None:
    plans = [
        plan_egress([], members, (), resolvers) for members in ([], ["203.0.113.9"]) for resolvers in ([], ["::1"])
    ]
    assert len(set(map(egress_mark, plans))) == 4


# With packets: a second namespace plays the world, and has all of these addresses on its link.

WORLD = (
    *("169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"),
    *("203.0.113.2", "2001:db8:78::2", "10.98.0.2", "fd98::2", "198.18.7.7", "2001:db8:99::7"),
)
FREE = {"198.18.7.7", "2001:db8:99::7"}
"""Of them, what nobody withholds."""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Path]:
    path, name = tmp_path / "world", f"out{secrets.token_hex(3)}"

    def plug_in(namespace: int) -> None:
        with NetlinkSocket() as inner:
            host.apply([links.add_veth(name, master=0, peer=links.VethPeer("eth0", "06:00:00:00:00:01", namespace))])
            index = links.index_of("eth0")
            assert index is not None
            own = [IPv4Interface("203.0.113.2/24"), IPv6Interface("2001:db8:78::2/64"), *map(_alone, WORLD)]
            inner.apply([links.link_up(1), links.link_up(index), *(links.add_address(index, each) for each in own)])

    with NetlinkSocket() as host:
        netns.create(path, plug_in)
        index = links.index_of(name)
        assert index is not None
        near = [IPv4Interface("203.0.113.1/24"), IPv6Interface("2001:db8:78::1/64")]
        host.apply([links.add_address(index, each) for each in near])
        ways = {4: "203.0.113.2", 6: "2001:db8:78::2"}
        try:
            for each in (each for each in WORLD if each not in ways.values()):
                way = ["ip", "route", "add", each, "via", ways[_version(each)], "dev", name]
                await anyio.run_process(way)
            yield path
        finally:
            host.apply([links.delete_link(name)])
            netns.delete(path)


def _alone(address: str) -> links.Interface:
    return IPv6Interface(f"{address}/128") if ":" in address else IPv4Interface(f"{address}/32")


MakeNode = Callable[..., "NodeNetwork"]


@pytest.fixture
async def make_node(tmp_path: Path) -> AsyncIterator[MakeNode]:
    made: list[NodeNetwork] = []

    def make(allowed: tuple[str, ...] = (), **given: object) -> NodeNetwork:
        egress = Egress(parse_allowed(allowed), **given)  # type: ignore[arg-type]
        made.append(NodeNetwork(own_node_id(), tmp_path / f"netns{len(made)}", egress=egress))
        return made[-1]

    yield make
    for node in made:
        await node.remove_node()


def _plan(number: int = 1) -> NetworkPlan:
    return NetworkPlan(MachineId(secrets.token_hex(7)), 7, IPv4Address(f"10.213.0.{number}"))


def _listen(port: int) -> socket.socket:
    return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)


def _dial(address: str, port: int, timeout_s: float) -> socket.socket:
    return socket.create_connection((address, port), timeout=timeout_s)


async def _reaches(machine: Path, address: str, port: int = PORT, timeout_s: float = 30.0) -> bool:
    try:
        (await anyio.to_thread.run_sync(netns.inside, machine, partial(_dial, address, port, timeout_s))).close()
    except OSError:
        return False
    return True


async def _reached(machine: Path, addresses: tuple[str, ...], awaited: set[str]) -> set[str]:
    """All at once, since most are waited for in vain; those that are to be reached may take long."""
    found: set[str] = set()

    async def one(address: str) -> None:
        if await _reaches(machine, address, timeout_s=30.0 if address in awaited else 2.0):
            found.add(address)

    async with anyio.create_task_group() as tasks:
        for address in addresses:
            tasks.start_soon(one, address)
    return found


def _lan() -> tuple[Network, ...]:
    """The host's networks in these tests; its real ones are not asked for."""
    return ip_network("203.0.113.0/24"), ip_network("2001:db8:78::/64")


@pytest.mark.root
@pytest.mark.anyio
async def test_a_machine_reaches_the_world_and_nothing_that_is_withheld(world: Path, make_node: MakeNode) -> None:
    node = make_node(connected=_lan)
    await node.boot()
    machine = await node.ensure(_plan())
    with await anyio.to_thread.run_sync(netns.inside, world, partial(_listen, PORT)):
        assert await _reached(machine, WORLD, FREE) == FREE


@pytest.mark.root
@pytest.mark.anyio
async def test_networks_of_the_real_host_are_withheld_by_themselves(world: Path, make_node: MakeNode) -> None:
    node = make_node()
    await node.boot()
    machine = await node.ensure(_plan())
    with await anyio.to_thread.run_sync(netns.inside, world, partial(_listen, PORT)):
        tried = ("203.0.113.2", "2001:db8:78::2", "198.18.7.7")
        assert await _reached(machine, tried, {"198.18.7.7"}) == {"198.18.7.7"}


@pytest.mark.root
@pytest.mark.anyio
async def test_an_address_the_operator_allows_is_reached(world: Path, make_node: MakeNode) -> None:
    node = make_node(("private", "203.0.113.0/24", "100.100.100.200"), connected=_lan)
    await node.boot()
    machine = await node.ensure(_plan())
    with await anyio.to_thread.run_sync(netns.inside, world, partial(_listen, PORT)):
        opened = {"10.98.0.2", "fd98::2", "203.0.113.2", "100.100.100.200", "198.18.7.7", "2001:db8:99::7"}
        assert await _reached(machine, WORLD, opened) == opened


@pytest.mark.root
@pytest.mark.anyio
async def test_members_are_withheld_when_they_join_and_reached_when_they_left(world: Path, make_node: MakeNode) -> None:
    node = make_node(connected=_lan)
    await node.boot()
    machine = await node.ensure(_plan())
    with await anyio.to_thread.run_sync(netns.inside, world, partial(_listen, PORT)):
        assert await _reaches(machine, "198.18.7.7")
        await node.withhold(frozenset({"198.18.7.7", "2001:db8:99::7"}))
        assert await _reached(machine, tuple(FREE), set()) == set()
        await node.withhold(frozenset())
        assert await _reached(machine, tuple(FREE), FREE) == FREE


@pytest.mark.root
@pytest.mark.anyio
async def test_a_connection_that_is_open_ends_when_its_peer_joins_the_fleet(world: Path, make_node: MakeNode) -> None:
    node = make_node(connected=_lan)
    await node.boot()
    machine = await node.ensure(_plan())
    with await anyio.to_thread.run_sync(netns.inside, world, partial(_listen, PORT)) as server:
        client = await anyio.to_thread.run_sync(netns.inside, machine, partial(_dial, "198.18.7.7", PORT, 30.0))
        peer, _ = server.accept()
        await node.withhold(frozenset({"198.18.7.7"}))
        peer.settimeout(QUIET_S)
        with client, peer:
            client.send(b"more")
            with pytest.raises(TimeoutError):
                await anyio.to_thread.run_sync(peer.recv, 1)


@pytest.mark.root
@pytest.mark.anyio
async def test_a_resolver_that_is_withheld_answers_at_its_port_and_no_other(world: Path, make_node: MakeNode) -> None:
    node = make_node(connected=_lan, resolvers=lambda: ("169.254.169.254", "fd98::2"))
    await node.boot()
    machine = await node.ensure(_plan())
    for port in (DNS, PORT):
        with await anyio.to_thread.run_sync(netns.inside, world, partial(_listen, port)):
            for resolver in ("169.254.169.254", "fd98::2"):
                assert await _reaches(machine, resolver, port, 30.0 if port == DNS else 2.0) == (port == DNS)
            assert not await _reaches(machine, "10.98.0.2", port, QUIET_S)


@pytest.mark.root
@pytest.mark.anyio
async def test_an_apps_own_policy_opens_nothing_that_the_node_withholds(world: Path, make_node: MakeNode) -> None:
    node, plan = make_node(connected=_lan), _plan()
    await node.boot()
    machine = await node.ensure(plan)
    filters = NodePacketFilters(node.node_id)
    if await filters.lack_of_filters():
        pytest.skip("the kernel has no br_netfilter")
    everything = frozenset({FilteredPort("tcp", None), FilteredPort("udp", None)})
    await filters.install_filters([PacketFilter(plan.machine_id, 7, plan.ipv4, egress=everything)])
    with await anyio.to_thread.run_sync(netns.inside, world, partial(_listen, PORT)):
        assert await _reached(machine, WORLD, FREE) == FREE
        await filters.install_filters([PacketFilter(plan.machine_id, 7, plan.ipv4, egress=frozenset())])
        assert await _reached(machine, ("198.18.7.7",), set()) == set()


@pytest.mark.root
@pytest.mark.anyio
async def test_machines_of_a_network_and_the_host_reach_each_other_as_before(make_node: MakeNode) -> None:
    node, one, other = make_node(), _plan(1), _plan(2)
    await node.boot()
    source, target = await node.ensure(one), await node.ensure(other)
    with await anyio.to_thread.run_sync(netns.inside, target, partial(_listen, PORT)):
        assert await _reaches(source, str(other.ipv6))
        for address, seen in ((str(other.ipv6), str(gateway(7))), ("10.213.0.2", str(GATEWAY4))):
            with await anyio.to_thread.run_sync(_dial, address, PORT, 30.0) as caller:
                assert caller.getsockname()[0] == seen


@pytest.mark.root
@pytest.mark.anyio
async def test_rules_that_were_removed_or_replaced_are_missed_and_put_back(make_node: MakeNode) -> None:
    node = make_node(connected=_lan)
    await node.boot()
    assert await node.guarded()
    with NetlinkSocket(NETLINK_NETFILTER) as rules:
        rules.apply(remove_table(f"hawker_{node.node_id[:4]}_egress"))
    assert not await node.guarded()
    await node.guard()
    assert await node.guarded()


@pytest.mark.root
@pytest.mark.anyio
async def test_a_plan_that_is_in_force_is_not_installed_again(
    make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make_node(connected=_lan)
    await node.boot()
    monkeypatch.setenv("PATH", "/nonexistent")
    await node.withhold(frozenset())
    with pytest.raises((Fault, FileNotFoundError)):
        await node.withhold(frozenset({"198.18.7.7"}))
    assert await node.guarded()
