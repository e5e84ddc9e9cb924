"""Facts about machines with kernels of their own: a tap in their namespace, and a guest at it."""

import errno
import secrets
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from hawker.host import links, netns
from hawker.host.address import gateway, machine_mac
from hawker.host.machine_link import TAP, MachineLink, NetworkPlan, TappedLink, WiredLink
from hawker.host.netlink import NetlinkSocket
from hawker.host.network import NodeNetwork
from hawker.host.vmm_user import user_of
from hawker.ids import MachineId
from tests.host.guest import OFFLOADS, Guest, guest
from tests.node_ids import own_node_id

pytestmark = [pytest.mark.root, pytest.mark.anyio]

PORT = 8080
QUIET_S = 0.3  # how long a connection that must not be made is tried
LONG_S = 30.0  # and one that must be
_LONG = 4 << 20


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[NodeNetwork]:
    """A booted node of its own, of machines with kernels of their own."""
    node = NodeNetwork(own_node_id(), tmp_path / "netns", TappedLink(user_of))
    await node.boot()
    yield node
    await node.remove_node()


@dataclass
class Guests:
    network: NodeNetwork
    directory: Path
    stack: ExitStack
    booted: list[Guest] = field(default_factory=list)

    async def boot(self, network_id: int = 7, *, offload: int = 0) -> Guest:
        plan = _plan(network_id, len(self.booted) + 1)
        await self.network.ensure(plan)
        self.booted.append(self.stack.enter_context(guest(self.network, plan, self.directory, offload)))
        return self.booted[-1]


def _plan(network_id: int = 7, last: int = 1) -> NetworkPlan:
    return NetworkPlan(MachineId(secrets.token_hex(7)), network_id, IPv4Address(f"10.213.1.{last}"))


@pytest.fixture
def guests(network: NodeNetwork, tmp_path: Path) -> Iterator[Guests]:
    with ExitStack() as stack:
        yield Guests(network, tmp_path, stack)


def _listen(address: str) -> socket.socket:
    return socket.create_server((address, PORT), family=socket.AF_INET6 if ":" in address else socket.AF_INET)


def _dial(address: str, timeout_s: float = LONG_S) -> str | None:
    """The address that the other end sees; None when nobody is there."""
    try:
        with socket.create_connection((address, PORT), timeout=timeout_s) as connection:
            return str(connection.getsockname()[0])
    except OSError:
        return None


async def test_guests_of_one_network_reach_each_other_and_no_others(guests: Guests) -> None:
    one, other, stranger = await guests.boot(), await guests.boot(), await guests.boot(8)
    for target in (str(other.plan.ipv6), str(other.plan.ipv4)):
        with await other.inside(partial(_listen, target)):
            assert await one.inside(partial(_dial, target)), target
            assert not await stranger.inside(partial(_dial, target, QUIET_S)), target


async def test_a_guest_and_a_container_of_one_network_reach_each_other(guests: Guests, tmp_path: Path) -> None:
    """As on a node that was set up anew while containers ran: names and bridges are the same."""
    containers = NodeNetwork(guests.network.node_id, tmp_path / "containers")
    one, plan = await guests.boot(), _plan(last=99)
    path = await containers.ensure(plan)
    with await anyio.to_thread.run_sync(netns.inside, path, partial(_listen, str(plan.ipv6))):
        assert await one.inside(partial(_dial, str(plan.ipv6)))
    with await one.inside(partial(_listen, str(one.plan.ipv6))):
        assert await anyio.to_thread.run_sync(netns.inside, path, partial(_dial, str(one.plan.ipv6)))
    await containers.delete(plan.machine_id)


async def test_the_host_reaches_a_guest_and_a_guest_not_the_host(guests: Guests) -> None:
    one = await guests.boot()
    with await one.inside(partial(_listen, "::")), await one.inside(partial(_listen, str(one.plan.ipv4))):
        assert await anyio.to_thread.run_sync(_dial, str(one.plan.ipv6)) == str(gateway(7))
        assert await anyio.to_thread.run_sync(_dial, str(one.plan.ipv4)) == "169.254.1.1"
    with _listen("::"):
        assert not await one.inside(partial(_dial, str(gateway(7)), QUIET_S))


@pytest.mark.parametrize("address, seen", [("198.51.100.2", "198.51.100.1"), ("2001:db8:77::2", "2001:db8:77::1")])
async def test_a_guest_goes_out_with_the_hosts_address(guests: Guests, outside: Path, address: str, seen: str) -> None:
    one = await guests.boot()
    with await anyio.to_thread.run_sync(netns.inside, outside, partial(_listen, address)) as server:
        assert await one.inside(partial(_dial, address))
        assert server.accept()[1][0] == seen


def _serve_much(server: socket.socket) -> None:
    with server.accept()[0] as connection:
        connection.sendall(bytes(range(256)) * (_LONG // 256))


def _fetch_much(address: str) -> bytes:
    with socket.create_connection((address, PORT), timeout=60) as connection, connection.makefile("rb") as file:
        return file.read()


@pytest.mark.parametrize(
    "offload", [0, OFFLOADS], ids=["every frame whole", "checksums and segments left to the other"]
)
async def test_bulk_traffic_arrives_whole_both_ways(guests: Guests, offload: int) -> None:
    one, other = await guests.boot(offload=offload), await guests.boot()
    for source, target in ((one, other), (other, one)):
        for address in (str(source.plan.ipv6), str(source.plan.ipv4)):
            with await source.inside(partial(_listen, address)) as server:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(source.inside, partial(_serve_much, server))
                    assert await target.inside(partial(_fetch_much, address)) == bytes(range(256)) * (_LONG // 256)


async def test_the_namespace_has_no_address_and_answers_nothing(network: NodeNetwork) -> None:
    """With nobody at the tap: neither ARP nor neighbour discovery gets an answer, though the link is up."""
    plan = _plan()
    path = await network.ensure(plan)
    shown = _ip(path, "-o", "addr")
    assert [line for line in shown.splitlines() if "lo" not in line.split()[1]] == []
    for address in (str(plan.ipv6), str(plan.ipv4)):
        assert await anyio.to_thread.run_sync(_dial, address, QUIET_S) is None
    assert machine_mac(plan.machine_id) not in _ip(path, "link")


def _ip(where: Path, *arguments: str) -> str:
    return _shown("nsenter", f"--net={where}", "ip", *arguments)


def _shown(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


async def test_a_tap_is_one_users_alone(network: NodeNetwork) -> None:
    plan, other = _plan(), _plan(last=2)
    path = await network.ensure(plan)
    for owner, refusal in ((user_of(plan.machine_id), 0), (user_of(other.machine_id), errno.EPERM)):
        assert await anyio.to_thread.run_sync(netns.inside, path, partial(_attached_as, owner)) == refusal


def _attached_as(user: int) -> int:
    """The number of the error that a program without privileges gets."""
    script = (
        "import os, sys; from hawker.host.machine_link import join, open_taps\n"
        "tap = open_taps(); os.setgroups([]); os.setresuid(*[int(sys.argv[1])] * 3)\n"
        "try: join(tap, sys.argv[2])\n"
        "except OSError as error: sys.exit(error.errno)\n"
    )
    return subprocess.run([sys.executable, "-c", script, str(user), TAP], check=False, timeout=60).returncode


async def test_two_cannot_be_at_one_tap(guests: Guests) -> None:
    one = await guests.boot()
    path = guests.network.path_of(one.plan.machine_id)
    assert (
        await anyio.to_thread.run_sync(netns.inside, path, partial(_attached_as, user_of(one.plan.machine_id)))
        == errno.EBUSY
    )
    await guests.network.ensure(one.plan)  # which leaves it to whoever is there
    with await one.inside(partial(_listen, str(one.plan.ipv6))):
        assert await anyio.to_thread.run_sync(_dial, str(one.plan.ipv6))


async def test_no_guest_fills_a_table_of_its_namespace(guests: Guests) -> None:
    """The bridge there learns nothing: a guest may invent link addresses for as long as it likes."""
    one = await guests.boot()
    await one.inside(_invent_addresses)
    path = guests.network.path_of(one.plan.machine_id)
    shown = _shown("nsenter", f"--net={path}", "bridge", "fdb", "show", "br", "br0")
    assert "16:00" not in shown


def _invent_addresses() -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind(("eth0", 0))
        for number in range(1000):
            raw.send(b"\xff" * 6 + b"\x16\0" + number.to_bytes(4, "big") + b"\x08\x06" + bytes(46))


class _CutShort(TappedLink, frozen=True):
    """The daemon is killed before the tap is made."""

    def configure(self, plan: NetworkPlan) -> None:
        raise InterruptedError("killed")


class _CutShortLater(TappedLink, frozen=True):
    def configure(self, plan: NetworkPlan) -> None:
        TappedLink.configure(self, plan)
        raise InterruptedError("killed")


@pytest.mark.parametrize("kind", [_CutShort(user_of), _CutShortLater(user_of)])
async def test_an_ensure_that_was_cut_short_is_completed_by_the_next(
    network: NodeNetwork, tmp_path: Path, kind: MachineLink
) -> None:
    plan = _plan()
    cut = NodeNetwork(network.node_id, tmp_path / "netns", kind)
    with pytest.raises(InterruptedError):
        await cut.ensure(plan)
    assert not netns.exists(network.path_of(plan.machine_id))
    await _is_whole(network, plan, tmp_path)


async def _is_whole(network: NodeNetwork, plan: NetworkPlan, directory: Path) -> None:
    await network.ensure(plan)
    assert await network.lost([plan]) == {}
    with guest(network, plan, directory) as one, await one.inside(partial(_listen, str(plan.ipv6))):
        assert await anyio.to_thread.run_sync(_dial, str(plan.ipv6))


@pytest.mark.parametrize("before, after", [(WiredLink(), TappedLink(user_of)), (TappedLink(user_of), WiredLink())])
async def test_a_namespace_of_the_other_kind_is_made_anew(
    network: NodeNetwork, tmp_path: Path, before: MachineLink, after: MachineLink
) -> None:
    """As when a node's driver is changed between two starts of a machine."""
    plan = _plan()
    await NodeNetwork(network.node_id, tmp_path / "netns", before).ensure(plan)
    path = await NodeNetwork(network.node_id, tmp_path / "netns", after).ensure(plan)
    assert netns.inside(path, after.fits) and not netns.inside(path, before.fits)
    assert f"{plan.ipv4} " in _shown("ip", "route")


async def test_deleting_a_machine_leaves_neither_link_nor_route(guests: Guests) -> None:
    """The address is the guest's, and still the host's route to it goes; a neighbour keeps the bridge there."""
    stays, goes = await guests.boot(), await guests.boot()
    guests.stack.close()
    await guests.network.delete(goes.plan.machine_id)
    await guests.network.delete(goes.plan.machine_id)
    routes = [_shown("ip", family, "route") for family in ("-4", "-6")]
    assert f"{stays.plan.ipv4} " in routes[0] and f"{goes.plan.ipv4} " not in routes[0]
    assert str(goes.plan.ipv6)[:-1] not in routes[1]
    assert await guests.network.list() == [stays.plan.machine_id]


def _without(name: str) -> None:
    with NetlinkSocket() as here:
        here.apply([links.delete_link(name)])


@pytest.mark.parametrize(
    "gone, said", [(TAP, "its tap is gone"), ("br0", "its tap is not in one bridge with its link")]
)
async def test_missing_tap_beside_the_link_is_seen_and_made_good(
    network: NodeNetwork, tmp_path: Path, gone: str, said: str
) -> None:
    plan = _plan()
    path = await network.ensure(plan)
    with netns.inside(path, lambda: subprocess.Popen(["sleep", "1000"])) as sleeper:
        netns.inside(path, partial(_without, gone))
        assert await network.lost([plan]) == {plan.machine_id: said}
        for _ in range(2):
            await network.reconnect(plan, sleeper.pid)
        await _is_whole(network, plan, tmp_path)
        sleeper.kill()
