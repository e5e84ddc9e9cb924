"""Facts about addresses of apps in private networks, which the host answers at for machines of the network alone."""

import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from ipaddress import IPv6Address, IPv6Interface
from pathlib import Path

import anyio.to_thread
import pytest

from hawker.host import links, netns
from hawker.host.address import bridge_name, gateway, network_prefix
from hawker.host.machine_link import NetworkPlan
from hawker.host.netlink import NetlinkSocket
from hawker.host.network import NodeNetwork
from hawker.host.nftables import refusal_of, table_name
from hawker.ids import MachineId
from tests.waiting import eventually

pytestmark = [pytest.mark.root, pytest.mark.anyio]

MINE, THEIRS = 7, 8
QUIET_S, WITHIN_S = 0.3, 30.0


def address_of_app(network_id: int, number: int = 5) -> IPv6Address:
    return network_prefix(network_id)[number << 24 | 1 << 16 | 2]


@contextmanager
def listening(address: IPv6Address) -> Iterator[int]:
    with socket.create_server((str(address), 0), family=socket.AF_INET6) as server:
        yield int(server.getsockname()[1])


async def reaches(source: Path, address: IPv6Address, port: int, timeout_s: float = WITHIN_S) -> bool:
    def dial() -> None:
        socket.create_connection((str(address), port), timeout=timeout_s).close()

    try:
        await anyio.to_thread.run_sync(partial(netns.inside, source, dial))
    except OSError:
        return False
    return True


def _plan(network_id: int) -> NetworkPlan:
    return NetworkPlan(MachineId(secrets.token_hex(7)), network_id)


async def reached(network: NodeNetwork, *awaited: str) -> set[str]:
    """Who comes to an app of one network, and who to the host, at addresses of that network. Those that are to come
    have long to do so."""
    ours, theirs = await network.ensure(_plan(MINE)), await network.ensure(_plan(THEIRS))
    address = address_of_app(MINE)
    await network.serve_at({MINE: frozenset({address}), THEIRS: frozenset({address_of_app(THEIRS)})})
    with listening(address) as port, listening(gateway(MINE)) as at_host:
        assert await reaches(ours, address, port)
        ways = {
            "stranger to app": (theirs, address, port),
            "machine to host": (ours, gateway(MINE), at_host),
            "stranger to host": (theirs, gateway(MINE), at_host),
        }
        return {name for name, way in ways.items() if await reaches(*way, WITHIN_S if name in awaited else QUIET_S)}


async def test_machines_reach_an_app_at_its_address_in_their_own_network_alone(network: NodeNetwork) -> None:
    assert await reached(network) == set(), "the host's other addresses are as before"


async def test_a_rule_without_the_network_lets_a_stranger_to_an_app(network: NodeNetwork) -> None:
    """A planted bug: the rule for apps as it is, but for its word about whose network it is. The same proof finds
    it."""
    app = "ip6 daddr & ::ff:0 == ::1:0 meta l4proto { tcp, udp } accept"
    refusal = await refusal_of(f"insert rule inet {table_name(network.node_id)} to_host {app}")
    assert not refusal
    assert await reached(network, "stranger to app") == {"stranger to app"}


async def test_an_app_is_reached_there_by_datagrams_too(network: NodeNetwork) -> None:
    ours, theirs = await network.ensure(_plan(MINE)), await network.ensure(_plan(THEIRS))
    address = address_of_app(MINE)
    await network.serve_at({MINE: frozenset({address})})
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as app:
        app.settimeout(QUIET_S)
        app.bind((str(address), 0))
        port = int(app.getsockname()[1])

        def send(word: bytes) -> None:
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
                sender.sendto(word, (str(address), port))

        def heard(source: Path, word: bytes) -> bool:
            """Before it is silent; what was sent earlier may come first."""
            netns.inside(source, partial(send, word))
            with suppress(TimeoutError):
                while app.recv(100) != word:
                    pass
                return True
            return False

        assert await eventually(lambda: anyio.to_thread.run_sync(heard, ours, b"ours"))
        assert not await anyio.to_thread.run_sync(heard, theirs, b"theirs")


async def test_nobody_outside_reaches_it(network: NodeNetwork, outside: Path) -> None:
    await network.ensure(_plan(MINE))
    address = address_of_app(MINE)
    await network.serve_at({MINE: frozenset({address})})

    def route() -> None:
        index = links.index_of("eth0")
        assert index is not None
        with NetlinkSocket() as here:
            here.apply([links.add_route(IPv6Interface("fdaa::/16"), index, via="2001:db8:77::1")])

    await anyio.to_thread.run_sync(partial(netns.inside, outside, route))
    with listening(address) as port:
        assert not await reaches(outside, address, port, QUIET_S)


async def test_an_address_is_the_hosts_as_long_as_it_is_an_apps_also_over_a_new_bridge(network: NodeNetwork) -> None:
    plan, address = _plan(MINE), address_of_app(MINE)
    await network.serve_at({MINE: frozenset({address})})
    path = await network.ensure(plan)
    with listening(address) as port:
        assert await reaches(path, address, port)
    await network.delete(plan.machine_id)
    assert links.index_of(bridge_name(network.node_id, MINE)) is None
    await network.ensure(plan)
    with listening(address):
        pass
    await network.serve_at({})
    with pytest.raises(OSError, match="annot assign"), listening(address):
        pass
