"""Facts about machines' networks, seen with real sockets from inside real namespaces."""

import secrets
import socket
import subprocess
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from hawker.host import links, netns, nft_messages, nftables
from hawker.host.address import bridge_name, gateway, interface_prefix, veth_name
from hawker.host.machine_link import NetworkPlan
from hawker.host.mount import unmount
from hawker.host.netlink import NETLINK_NETFILTER, NetlinkSocket
from hawker.host.network import NodeNetwork
from hawker.ids import MachineId
from tests.node_ids import own_node_id
from tests.waiting import eventually

pytestmark = [pytest.mark.root, pytest.mark.anyio]

_PORT = 8080
_QUIET_S = 0.3  # how long a connection that must not be made is tried


def _machine() -> MachineId:
    return MachineId(secrets.token_hex(7))


def _plan(network_id: int = 7, *, ipv4: str | None = None) -> NetworkPlan:
    return NetworkPlan(_machine(), network_id, IPv4Address(ipv4) if ipv4 else None)


def _interfaces() -> list[str]:
    with NetlinkSocket() as netlink:
        return [link.name for link in links.links(netlink)]


def _listen(address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, _PORT), family=family)


def _dial(address: str, timeout_s: float = 30.0) -> str:
    """Connect, and return the address that this end has."""
    with socket.create_connection((address, _PORT), timeout=timeout_s) as connection:
        return str(connection.getsockname()[0])


def _receiver(address: str) -> socket.socket:
    receiver = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    receiver.settimeout(30.0)
    receiver.bind((address, _PORT))
    return receiver


def _send(address: str) -> None:
    """One packet, which nobody sends again: a connection would, after a second, also where it was only slow."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"first", (address, _PORT))


async def _reaches(source: Path, address: str, timeout_s: float = 30.0) -> bool:
    try:
        await anyio.to_thread.run_sync(netns.inside, source, partial(_dial, address, timeout_s))
    except OSError:
        return False
    return True


async def _serve(where: Path, address: str) -> socket.socket:
    return await anyio.to_thread.run_sync(netns.inside, where, partial(_listen, address))


async def test_machine_has_its_address_and_loopback_at_once(network: NodeNetwork) -> None:
    plan = _plan()
    path = await network.ensure(plan)
    assert path == network.path_of(plan.machine_id)
    for address in (str(plan.ipv6), "::1", "127.0.0.1"):
        (await _serve(path, address)).close()


async def test_host_reaches_a_machine_over_both_families(network: NodeNetwork) -> None:
    plan = _plan(ipv4="10.213.0.1")
    path = await network.ensure(plan)
    with await _serve(path, "::"), await _serve(path, "10.213.0.1"):
        assert await anyio.to_thread.run_sync(_dial, str(plan.ipv6)) == str(gateway(7))
        assert await anyio.to_thread.run_sync(_dial, "10.213.0.1") == "169.254.1.1"


async def test_two_nodes_on_one_host_may_have_machines_of_one_network(network: NodeNetwork, tmp_path: Path) -> None:
    other_node = NodeNetwork(own_node_id(), tmp_path / "other")
    await other_node.boot()
    try:
        one, other = _plan(), _plan()
        for node, plan in ((network, one), (other_node, other)):
            with await _serve(await node.ensure(plan), "::"):
                assert await anyio.to_thread.run_sync(_dial, str(plan.ipv6)) == str(gateway(7))
    finally:
        await other_node.remove_node()


async def test_machines_of_one_network_reach_each_other(network: NodeNetwork) -> None:
    one, other = _plan(), _plan()
    source, target = await network.ensure(one), await network.ensure(other)
    with await _serve(target, str(other.ipv6)):
        assert await _reaches(source, str(other.ipv6))


async def test_first_packet_between_fresh_machines_arrives(network: NodeNetwork) -> None:
    one, other = _plan(), _plan()
    source, target = await network.ensure(one), await network.ensure(other)
    with await anyio.to_thread.run_sync(netns.inside, target, partial(_receiver, str(other.ipv6))) as receiver:
        await anyio.to_thread.run_sync(netns.inside, source, partial(_send, str(other.ipv6)))
        assert await anyio.to_thread.run_sync(receiver.recv, 100) == b"first"


async def test_machines_of_different_networks_do_not_meet(network: NodeNetwork) -> None:
    one, other = _plan(7, ipv4="10.213.0.1"), _plan(8, ipv4="10.213.0.2")
    source, target = await network.ensure(one), await network.ensure(other)
    with await _serve(target, str(other.ipv6)), await _serve(target, "10.213.0.2"):
        assert not await _reaches(source, str(other.ipv6), _QUIET_S)
        assert not await _reaches(source, "10.213.0.2", _QUIET_S)
        assert await anyio.to_thread.run_sync(_dial, str(other.ipv6))


async def test_machines_of_different_nodes_do_not_meet(network: NodeNetwork, tmp_path: Path) -> None:
    second = NodeNetwork(own_node_id(), tmp_path / "second")
    try:
        await second.boot()
        one, other = _plan(7), _plan(9)
        source, target = await network.ensure(one), await second.ensure(other)
        with await _serve(target, str(other.ipv6)):
            assert not await _reaches(source, str(other.ipv6), _QUIET_S)
    finally:
        await second.remove_node()


async def test_machine_does_not_reach_the_host(network: NodeNetwork) -> None:
    path = await network.ensure(_plan())
    with _listen("::"):
        assert not await _reaches(path, str(gateway(7)), _QUIET_S)


async def test_machine_cannot_borrow_an_address(network: NodeNetwork) -> None:
    one, other = _plan(7), _plan(7)
    source, target = await network.ensure(one), await network.ensure(other)
    borrowed = "fdaa:0:8::5"
    await _ip(source, "addr", "add", f"{borrowed}/128", "dev", "eth0", "nodad")
    with await _serve(target, str(other.ipv6)) as server:
        server.settimeout(_QUIET_S)

        def dial_borrowed() -> None:
            socket.create_connection((str(gateway(7)), _PORT), timeout=_QUIET_S, source_address=(borrowed, 0))

        with pytest.raises(OSError, match="timed out"):
            await anyio.to_thread.run_sync(netns.inside, source, dial_borrowed)


@pytest.mark.parametrize("address, seen", [("198.51.100.2", "198.51.100.1"), ("2001:db8:77::2", "2001:db8:77::1")])
async def test_machine_goes_out_with_the_hosts_address(
    network: NodeNetwork, outside: Path, address: str, seen: str
) -> None:
    path = await network.ensure(_plan(ipv4="10.213.0.1"))
    with await _serve(outside, address) as server:
        assert await _reaches(path, address)
        assert server.accept()[1][0] == seen


async def test_the_outside_does_not_reach_a_machine(network: NodeNetwork, outside: Path) -> None:
    plan = _plan()
    path = await network.ensure(plan)
    await _ip(outside, "-6", "route", "add", "fdaa::/16", "via", "2001:db8:77::1")
    with await _serve(path, str(plan.ipv6)):
        assert not await _reaches(outside, str(plan.ipv6), _QUIET_S)


async def test_ensure_again_changes_nothing(network: NodeNetwork) -> None:
    plan = _plan()
    path = await network.ensure(plan)
    before = (path.stat().st_ino, _own_interfaces(network))
    assert await network.ensure(plan) == path
    assert (path.stat().st_ino, _own_interfaces(network)) == before and len(before[1]) == 2


async def test_machines_made_at_once_all_get_their_network(network: NodeNetwork) -> None:
    plans = [_plan(ipv4=f"10.213.0.{number}") for number in range(1, 11)]
    async with anyio.create_task_group() as tasks:
        for plan in plans:
            tasks.start_soon(network.ensure, plan)
    assert await network.list() == sorted(plan.machine_id for plan in plans)


async def test_machines_with_the_same_short_id_both_get_a_link(network: NodeNetwork) -> None:
    plans = [NetworkPlan(MachineId(f"0123456789abc{last}"), 7) for last in "de"]
    paths = [await network.ensure(plan) for plan in plans]
    with await _serve(paths[1], str(plans[1].ipv6)):
        assert await _reaches(paths[0], str(plans[1].ipv6))
    for plan in plans:
        await network.delete(plan.machine_id)


async def test_the_last_machine_takes_the_bridge_with_it(network: NodeNetwork) -> None:
    one, other = _plan(ipv4="10.213.0.1"), _plan()
    await network.ensure(one)
    await network.ensure(other)
    prefix = _prefix_of(network)
    assert sum(name.startswith(prefix) for name in _interfaces()) == 3
    await network.delete(one.machine_id)
    assert sum(name.startswith(prefix) for name in _interfaces()) == 2
    await network.delete(other.machine_id)
    await network.delete(other.machine_id)
    assert not any(name.startswith(prefix) for name in _interfaces())
    assert await network.list() == []
    assert bridge_name(network.node_id, 7) not in _table(network)


async def test_sweep_removes_a_bridge_that_a_crash_left(network: NodeNetwork) -> None:
    plan = _plan()
    await network.ensure(plan)
    name = next(name for name in _interfaces() if name.startswith(f"{_prefix_of(network)}v"))
    with NetlinkSocket() as netlink:
        netlink.apply([links.delete_link(name)])
    await network.sweep()
    assert not any(name.startswith(_prefix_of(network)) for name in _interfaces())


async def test_a_namespace_without_its_link_can_be_deleted(network: NodeNetwork) -> None:
    plan = _plan()
    await network.ensure(plan)
    with NetlinkSocket() as netlink:
        netlink.apply([links.delete_link(veth_name(network.node_id, plan.machine_id))])
    await network.delete(plan.machine_id)
    assert await network.list() == []


async def test_a_delete_that_was_cut_short_takes_the_bridge_with_it_the_second_time(network: NodeNetwork) -> None:
    plan = _plan()
    netns.delete(await network.ensure(plan))
    await eventually(lambda: not any(name.startswith(f"{_prefix_of(network)}v") for name in _interfaces()))
    await network.delete(plan.machine_id)
    assert [name for name in _interfaces() if name.startswith(_prefix_of(network))] == []


async def test_a_plain_file_left_by_a_reboot_is_replaced(network: NodeNetwork, tmp_path: Path) -> None:
    plan = _plan()
    network.path_of(plan.machine_id).parent.mkdir(exist_ok=True)
    network.path_of(plan.machine_id).touch()
    assert netns.exists(await network.ensure(plan))


async def test_boot_again_keeps_networks_reachable(network: NodeNetwork) -> None:
    await network.ensure(_plan())
    before = _table(network)
    await network.boot()
    assert bridge_name(network.node_id, 7) in before
    assert _uncounted(_table(network)) == _uncounted(before)


async def _ip(where: Path, *arguments: str) -> None:
    await anyio.run_process(["nsenter", f"--net={where}", "ip", *arguments])


def _prefix_of(network: NodeNetwork) -> str:
    return interface_prefix(network.node_id)


def _own_interfaces(network: NodeNetwork) -> list[str]:
    """Other tests make links on this host, too."""
    return sorted(name for name in _interfaces() if name.startswith(_prefix_of(network)))


def _uncounted(table: str) -> list[str]:
    """Without what was counted of machines so far."""
    return [line for line in table.splitlines() if "ct count" not in line and "limit rate" not in line]


def _table(network: NodeNetwork) -> str:
    command = ["nft", "list", "table", "inet", f"hawker_{network.node_id[:4]}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


# Found and made good under a machine that runs.


async def _inhabited(network: NodeNetwork, plan: NetworkPlan) -> "subprocess.Popen[bytes]":
    """A network with a process in it, as a machine has one."""
    path = await network.ensure(plan)
    return netns.inside(path, lambda: subprocess.Popen(["sleep", "1000"]))


async def _is_whole(network: NodeNetwork, plan: NetworkPlan, pid: int) -> None:
    """After what was lost is made good, twice."""
    for _ in range(2):
        await network.reconnect(plan, pid)
    assert await network.lost([plan]) == {}
    with await _serve(network.path_of(plan.machine_id), "::"):
        assert await anyio.to_thread.run_sync(_dial, str(plan.ipv6)) == str(gateway(plan.network_id))


async def test_an_unbound_namespace_is_bound_again(network: NodeNetwork) -> None:
    plan = _plan()
    with await _inhabited(network, plan) as sleeper:
        unmount(network.path_of(plan.machine_id))
        assert await network.lost([plan]) == {plan.machine_id: "its network namespace is not bound here any more"}
        await _is_whole(network, plan, sleeper.pid)
        sleeper.kill()


async def test_a_deleted_link_is_made_again(network: NodeNetwork) -> None:
    plan, other = _plan(ipv4="10.213.0.1"), _plan()
    await network.ensure(other)
    with await _inhabited(network, plan) as sleeper:
        await network.unlink(veth_name(network.node_id, plan.machine_id))
        await network.unlink(veth_name(network.node_id, plan.machine_id))
        assert await network.lost([plan, other]) == {plan.machine_id: "its link is gone"}
        await _is_whole(network, plan, sleeper.pid)
        sleeper.kill()


def _leave_bridge(name: str) -> None:
    subprocess.run(["ip", "link", "set", name, "nomaster"], check=True, timeout=60)


async def test_a_link_that_left_its_bridge_comes_back(network: NodeNetwork) -> None:
    plan = _plan()
    with await _inhabited(network, plan) as sleeper:
        _leave_bridge(veth_name(network.node_id, plan.machine_id))
        assert await network.lost([plan]) == {plan.machine_id: "its link is not in the bridge of its network"}
        await _is_whole(network, plan, sleeper.pid)
        sleeper.kill()


async def test_a_deleted_bridge_is_made_again(network: NodeNetwork) -> None:
    plan = _plan()
    with await _inhabited(network, plan) as sleeper:
        await network.unlink(bridge_name(network.node_id, plan.network_id))
        assert await network.lost([plan]) == {plan.machine_id: "the bridge of its network is gone"}
        await _is_whole(network, plan, sleeper.pid)
        sleeper.kill()


async def test_rules_that_were_removed_are_seen_and_put_back_for_all_networks(network: NodeNetwork) -> None:
    first, second = _plan(), _plan()
    source, target = await network.ensure(first), await network.ensure(second)
    with NetlinkSocket(NETLINK_NETFILTER) as rules:
        rules.apply(nft_messages.remove_table(nftables.table_name(network.node_id)))
    assert not await network.guarded()
    await network.guard()
    assert await network.guarded()
    with await _serve(target, "::"):
        assert await _reaches(source, str(second.ipv6))


async def test_a_node_that_was_removed_makes_no_rules_for_what_it_still_hears(tmp_path: Path) -> None:
    node = NodeNetwork(own_node_id(), tmp_path / "gone")
    try:
        await node.boot()
        await node.remove_node()
        await node.withhold(frozenset({"198.18.7.7"}))
        tables = await anyio.to_thread.run_sync(
            lambda: subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
        )
        assert f"hawker_{node.node_id[:4]}" not in tables and await node.guarded()
    finally:
        await node.remove_node()
