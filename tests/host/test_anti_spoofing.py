"""Facts about the frames that machines may send, forged from inside of both kinds of machines."""

import secrets
import subprocess
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import anyio.to_thread
import pytest

from hawker.host import anti_spoofing, links, netns
from hawker.host.address import bridge_name, veth_name
from hawker.host.machine_link import MachineLink, NetworkPlan, TappedLink, WiredLink
from hawker.host.netlink import NETLINK_NETFILTER, NetlinkSocket, host_sockets
from hawker.host.network import NodeNetwork
from hawker.host.vmm_user import user_of
from hawker.ids import MachineId
from tests.host.forging import Forger, ear, heard, send
from tests.host.guest import guest
from tests.node_ids import own_node_id

pytestmark = [pytest.mark.root, pytest.mark.anyio]

_FOREIGN = b"\x06\xff\xff\xff\xff\xff"


@pytest.fixture(params=[WiredLink(), TappedLink(user_of)], ids=["container", "guest"])
async def network(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[NodeNetwork]:
    kind: MachineLink = request.param
    node = NodeNetwork(own_node_id(), tmp_path / "netns", kind)
    await node.boot()
    yield node
    await node.remove_node()


@contextmanager
def inhabited(network: NodeNetwork, plan: NetworkPlan, directory: Path) -> Iterator[Path]:
    """Where the machine's root is."""
    if netns.inside(network.path_of(plan.machine_id), TappedLink(user_of).fits):
        with guest(network, plan, directory) as booted:
            yield booted.path
    else:
        yield network.path_of(plan.machine_id)


def _plan(last: int) -> NetworkPlan:
    return NetworkPlan(MachineId(secrets.token_hex(7)), 7, IPv4Address(f"10.213.2.{last}"))


@pytest.fixture
async def three(network: NodeNetwork, tmp_path: Path) -> AsyncIterator[tuple[Forger, Path, Path]]:
    """Who forges, and where it and its victim are."""
    plans = [_plan(last) for last in (1, 2, 3)]
    for plan in plans:
        await network.ensure(plan)
    with ExitStack() as stack:
        paths = [stack.enter_context(inhabited(network, plan, tmp_path)) for plan in plans]
        yield Forger(plans[0], plans[1], plans[2]), paths[0], paths[1]


async def _arrived(
    three: tuple[Forger, Path, Path], choose: Callable[[Forger], dict[str, bytes]], awaited: Collection[str] = ()
) -> set[str]:
    """Which of the frames the victim hears; those that are to come are waited for. Each call has marks of its own: a
    frame of an earlier one may be late."""
    forger, source, target = three
    call = secrets.token_hex(2).encode()
    marks = {b"%b %04d." % (call, number): name for number, name in enumerate(choose(forger))}
    raw = netns.inside(target, ear)
    with raw:
        for mark, name in marks.items():
            await anyio.to_thread.run_sync(
                netns.inside, source, partial(send, choose(replace(forger, mark=mark))[name])
            )
        last = replace(forger, mark=b"%b the end" % call)
        await anyio.to_thread.run_sync(netns.inside, source, partial(send, last.ipv6(last.own.ipv6)))
        waited = [mark for mark, name in marks.items() if name in awaited]
        found = await anyio.to_thread.run_sync(heard, raw, list(marks), last.mark, waited)
    return {marks[mark] for mark in found}


async def test_frames_with_a_machines_own_addresses_are_heard(three: tuple[Forger, Path, Path]) -> None:
    assert await _arrived(three, Forger.true, three[0].true()) == set(three[0].true())


async def test_nothing_that_a_machine_forges_is_heard(three: tuple[Forger, Path, Path]) -> None:
    assert await _arrived(three, Forger.forged) == set()


async def test_a_bridge_does_not_learn_link_addresses_from_forged_frames(
    network: NodeNetwork, three: tuple[Forger, Path, Path]
) -> None:
    """Frames to the groups of 802.1D go past the rules for what is handed on."""
    forger, source, _ = three
    await anyio.to_thread.run_sync(netns.inside, source, partial(send, forger.to_group(_FOREIGN)))
    assert await _arrived(three, Forger.true, forger.true()) == set(forger.true())
    shown = _learned(network)
    assert "06:ff:ff:ff:ff:ff" not in shown
    assert veth_name(network.node_id, forger.own.machine_id) in shown


def _learned(network: NodeNetwork) -> str:
    command = ["bridge", "fdb", "show", "br", bridge_name(network.node_id, 7)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


async def test_without_the_frame_rules_forged_frames_would_be_heard(
    network: NodeNetwork, three: tuple[Forger, Path, Path]
) -> None:
    """So the frames are good, and it is the rules that hold them up. Where bridges show packets to the node's other
    rules, those stop a few of them too."""
    with NetlinkSocket(NETLINK_NETFILTER) as rules:
        rules.apply(anti_spoofing.remove_frames(network.node_id))
    may_be_stopped = {"as nobody over IPv4", "as the gateway", "as the gateway over IPv4", "as somebody outside"}
    awaited = set(three[0].forged()) - may_be_stopped
    assert await _arrived(three, Forger.forged, awaited) >= awaited
    assert not await network.guarded()
    await network.guard()
    assert await network.guarded()
    assert await _arrived(three, Forger.forged) == set()
    assert await _arrived(three, Forger.true, three[0].true()) == set(three[0].true())


async def test_a_link_that_nobody_admitted_sends_nothing(
    network: NodeNetwork, three: tuple[Forger, Path, Path]
) -> None:
    plan = three[0].own
    index = links.index_of(veth_name(network.node_id, plan.machine_id))
    assert index is not None
    with NetlinkSocket(NETLINK_NETFILTER) as rules:
        assert index in anti_spoofing.senders(rules, network.node_id)
        anti_spoofing.forget(rules, network.node_id, index, plan)
        anti_spoofing.forget(rules, network.node_id, index, plan)
    assert await network.lost([plan]) == {plan.machine_id: "its frames are not let through"}
    await network.ensure(plan)
    assert await network.lost([plan]) == {}
    assert await _arrived(three, Forger.true, three[0].true()) == set(three[0].true())


async def test_elements_that_a_crash_left_in_the_sets_are_swept(network: NodeNetwork) -> None:
    plan, gone = _plan(1), 0x7FFFFFF0
    await network.ensure(plan)
    with host_sockets() as host:
        host.rules.apply(anti_spoofing.let_send(network.node_id, gone, _plan(2)))
        assert gone in anti_spoofing.senders(host.rules, network.node_id)
        await network.sweep()
        index = links.index_of(veth_name(network.node_id, plan.machine_id))
        assert anti_spoofing.senders(host.rules, network.node_id) == {index}
        await network.delete(plan.machine_id)
        assert anti_spoofing.senders(host.rules, network.node_id) == frozenset()
