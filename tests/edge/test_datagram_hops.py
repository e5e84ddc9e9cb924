"""UDP to machines of another host: over one conversation of two edges, with each flow counted at the machine's gate."""

import asyncio
from functools import partial

import msgspec
import pytest

from hawker.edge import hops, machine_socket
from hawker.edge.datagram_hops import FlowFrame
from hawker.edge.hop_frames import HopQuestion
from hawker.edge.routes import Routes
from hawker.fair.occupancy import Occupancy
from hawker.fair.table import EDGE_FLOWS
from hawker.feed import AppAddress, CloseMachine, GatePlace
from hawker.ids import AppName, InstanceId
from hawker.machine import State
from tests.edge.edge_kit import (
    HOST,
    KEY,
    PlayedHost,
    played_host,
    publish_abroad,
    publish_far,
    route,
    seen_from_abroad,
    seen_from_afar,
)
from tests.edge.udp_kit import ask, client, udp_app, udp_route
from tests.ports import free_port
from tests.waiting import eventually

replace = msgspec.structs.replace


def inside(far: PlayedHost) -> int:
    """How much the gate of the far host counts in its machines."""
    return sum(gate.total for gate in far.edge.gates.of.values())


async def test_datagrams_go_both_ways_and_each_flow_is_counted_at_the_machines_gate(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async with udp_app() as (within, _):
        port = free_port()
        await publish_far(host, far, gate, udp_route(port, within))
        with client(port) as one, client(port) as two:
            assert await ask(one, b"1") == b"got 1" and await ask(two, b"2") == b"got 2"
            large = b"x" * 60_000
            assert await ask(one, large) == b"got " + large, "as large as datagrams are"
            assert await ask(one, b"") == b"got ", "and as small"
            assert inside(far) == 2 == sum(each.lasting for each in far.edge.gates.of.values())
            assert far.counted("hops") == 2 == len(host.edge.datagrams)
            assert len(far.edge.hops.table) == 1, "by one connection"
        host.edge.datagrams.end()
        await eventually(lambda: inside(far) == 0)


async def test_a_hard_limit_holds_for_flows_of_all_edges_together(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async with udp_app(b"full") as (first, _), udp_app(b"other") as (second, _):
        port = free_port()
        one, two = udp_route(port, first, hard=1), udp_route(port, second)
        await publish_far(host, far, gate, one)
        far.edge.gates.of[one.id].enter(0)  # of the far host's own clients
        await publish_far(host, far, gate, two)
        for _ in range(3):
            with client(port) as sender:
                assert await ask(sender, b"?") == b"other ?"
        assert far.edge.gates.of[one.id].total == 1


async def test_a_datagram_wakes_a_machine_of_another_host(host: PlayedHost, far: PlayedHost, gate: GatePlace) -> None:
    port, within = free_port(), free_port()
    machine = udp_route(port, within, state=State.STOPPED)
    far.worker.on_wake = lambda asleep: replace(asleep, state=State.STARTED, instance=InstanceId("new"))
    await publish_far(host, far, gate, machine)
    with client(port) as sender:
        sender.send(b"hello")
        await eventually(lambda: inside(far) == 1)
        async with udp_app(port=within):
            loop = asyncio.get_running_loop()
            assert await asyncio.wait_for(loop.sock_recv(sender, 100), 60) == b"got hello"
    assert far.worker.wakes == [machine.id]


async def test_a_flow_begins_anew_when_its_machine_is_closed(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async with udp_app(b"one") as (first, _), udp_app(b"two") as (second, _):
        port = free_port()
        one, two = udp_route(port, first), udp_route(port, second)
        await publish_far(host, far, gate, one)
        with client(port) as sender:
            assert await ask(sender, b"?") == b"one ?"
            await publish_far(host, far, gate, two)
            assert one.instance is not None
            far.worker.say(CloseMachine(call=1, id=one.id, instance=one.instance, wait_s=0.0))
            await eventually(lambda: not far.edge.gates.of[one.id].is_open)
            assert await ask(sender, b"?") == b"two ?"
        assert far.edge.gates.of[one.id].total == 0


async def test_a_gate_that_goes_ends_flows_and_the_next_one_has_them_again(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async with udp_app() as (within, _):
        port = free_port()
        await publish_far(host, far, gate, udp_route(port, within))
        with client(port) as sender:
            assert await ask(sender, b"1") == b"got 1"
            far.edge.hops.end()
            await eventually(lambda: not len(host.edge.datagrams) and inside(far) == 0)
            assert await ask(sender, b"2") == b"got 2"


async def test_a_program_that_does_not_listen_is_told_of_at_its_own_host(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_socket, "_TRIES", 2)
    port, within = free_port(), free_port()
    await publish_far(host, far, gate, udp_route(port, within))
    with client(port) as sender:
        sender.send(b"hello")
        await eventually(lambda: any(line.code == "PC01" for line in far.worker.lines))
        await eventually(lambda: not len(host.edge.datagrams) and inside(far) == 0)
    assert f"UDP port {within}" in far.worker.lines[-1].text


async def test_a_gate_has_so_many_flows_of_an_organization(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = Occupancy(replace(EDGE_FLOWS, total=1, each=1, reserve=0))
    monkeypatch.setattr(far.edge.datagram_gate, "_of_org", few)
    async with udp_app() as (within, app):
        port = free_port()
        await publish_far(host, far, gate, udp_route(port, within))
        with client(port) as one, client(port) as two:
            assert await ask(one, b"1") == b"got 1"
            two.send(b"2")
            await eventually(lambda: host.counted("flows") == 2)
            assert await ask(one, b"3") == b"got 3" and b"2" not in app.heard and inside(far) == 1


async def test_a_line_that_nobody_uses_is_closed(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with udp_app() as (within, _):
        port = free_port()
        await publish_far(host, far, gate, udp_route(port, within))
        with client(port) as sender:
            assert await ask(sender, b"1") == b"got 1"
            line = next(iter(far.edge.datagram_gate.lines))
            monkeypatch.setattr("hawker.edge.datagram_hops.FREE_S", 0.0)
            assert await ask(sender, b"2") == b"got 2", "one with a flow stays"
            assert line in far.edge.datagram_gate.lines
            monkeypatch.setattr("hawker.edge.datagrams.ANSWERED_S", 0.0)
            await eventually(lambda: not far.edge.datagram_gate.lines)


@pytest.mark.parametrize("said", [b"\x09\0\0\0\1\0\0", b"\x02\0\0\0\1\0\0", b"\x01\0\0\0\1\0\1x"], ids=repr)
async def test_bytes_that_are_no_frame_end_the_conversation(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, said: bytes
) -> None:
    async with udp_app() as (within, _):
        port = free_port()
        await publish_far(host, far, gate, udp_route(port, within))
        with client(port) as sender:
            assert await ask(sender, b"1") == b"got 1"
            (line,) = host.edge.datagrams._hops._lines.values()  # type: ignore[attr-defined]  # what only a broken edge would say
            line._transport.write(said)
            await eventually(lambda: inside(far) == 0 and not far.edge.datagram_gate.lines)
            assert await ask(sender, b"2") == b"got 2", "the next datagram makes another one"


async def test_datagrams_beyond_what_a_line_holds_are_dropped(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with udp_app() as (within, _):
        port = free_port()
        await publish_far(host, far, gate, udp_route(port, within))
        with client(port) as sender:
            assert await ask(sender, b"1") == b"got 1"
            monkeypatch.setattr("hawker.edge.datagram_hops._MOST_UNSENT_BYTES", -1)
            sender.send(b"2")
            await eventually(lambda: host.counted("datagrams_dropped") == 1)
            monkeypatch.undo()
            assert await ask(sender, b"3") == b"got 3"


def test_frames_are_told_apart_by_their_first_byte() -> None:
    assert [kind.value for kind in FlowFrame] == [1, 2, 3, 4], "older edges know these"


async def test_an_edge_of_the_version_before_lets_no_flow_in(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hops, "HopQuestion", partial(_of_old, HopQuestion))
    monkeypatch.setattr("hawker.edge.visits.ROUTE_TIMEOUT_S", 0.5)
    async with udp_app() as (within, _):
        port = free_port()
        await publish_far(host, far, gate, udp_route(port, within))
        with client(port) as sender:
            sender.send(b"1")
            await eventually(lambda: any(line.code == "PR03" for line in host.worker.lines))
        assert not len(host.edge.datagrams) and inside(far) == 0 and far.counted("mistakes") == 0


def _of_old(kind: type[msgspec.Struct], *, datagrams: bool, **rest: object) -> msgspec.Struct:
    return kind(**rest)


async def test_datagrams_go_to_another_region_where_nobody_of_this_one_has_room(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async with udp_app(b"here") as (near, _), udp_app(b"abroad") as (within, _):
        port = free_port()
        machine = udp_route(port, within)
        await host.publish(udp_route(port, near, hard=1))
        await publish_abroad(host, far, gate, machine)
        with client(port) as one, client(port) as two:
            assert await ask(one, b"1") == b"here 1"
            assert await ask(two, b"2") == b"abroad 2"
            assert await ask(one, b"3") == b"here 3", "a flow stays at its machine"
            assert far.edge.gates.of[machine.id].total == 1 == far.counted("hops")
        host.edge.datagrams.end()
        await eventually(lambda: inside(far) == 0)


async def test_a_region_starts_its_machine_for_datagrams_of_another(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async with udp_app() as (within, _):
        port = free_port()
        machine = udp_route(port, within, state=State.STOPPED)
        far.worker.on_wake = lambda asleep: replace(asleep, state=State.STARTED, instance=InstanceId("new"))
        await publish_abroad(host, far, gate, machine)
        with client(port) as sender:
            assert await ask(sender, b"?") == b"got ?"
    assert far.worker.wakes == [machine.id]


async def test_a_host_that_another_region_asks_passes_datagrams_on_to_a_host_of_its_own(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async with udp_app() as (within, _), played_host() as third:
        port, place = free_port(), await third.join("c" * 8, KEY)
        machine = udp_route(port, within)
        await host.publish(seen_from_abroad(machine, gate))
        third.worker.put(replace(machine, publish=""))
        far.worker.put(seen_from_afar(machine, place))
        for each in (far, third):
            await eventually(lambda: machine.id in each.edge.gates.of)  # noqa: B023
        with client(port) as sender:
            assert await ask(sender, b"1") == b"got 1" and await ask(sender, b"2") == b"got 2"
            assert inside(third) == 1 == far.edge.gates.of[machine.id].total
        host.edge.datagrams.end()
        await eventually(lambda: inside(third) == inside(far) == 0)


async def test_a_host_that_another_region_asks_tries_the_next_machine_where_one_is_not_reached(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async with udp_app() as (within, _), played_host() as third:
        port, place = free_port(), await third.join("c" * 8, KEY)
        lost, there = udp_route(port, within, machine_id="0" * 14), udp_route(port, within)
        await host.publish(seen_from_abroad(there, gate))
        third.worker.put(replace(there, publish=""))
        nobody = replace(place, port=free_port())
        for machine, at in ((lost, nobody), (there, place)):
            far.worker.put(seen_from_afar(machine, at))
            await eventually(lambda: machine.id in far.edge.gates.of)  # noqa: B023
        await eventually(lambda: there.id in third.edge.gates.of)
        for _ in range(4):  # whom it asks first is drawn by lot
            with client(port) as sender:
                assert await ask(sender, b"?") == b"got ?"


async def test_a_region_never_passes_datagrams_on_to_another_one(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    port, back = free_port(), host.gate_place
    machine = udp_route(port, 1)
    await host.publish(seen_from_abroad(machine, gate))
    far.worker.put(seen_from_abroad(machine, back, region="ams"))
    await eventually(lambda: far.edge.gates.of)
    with client(port) as sender:
        sender.send(b"?")
        await eventually(lambda: far.counted("hops_refused_PR01") == 1)
        await eventually(lambda: not len(host.edge.datagrams))
    assert host.counted("hops_refused_PR01") == 0


async def test_datagrams_reach_no_port_of_another_regions_tcp_and_no_name_that_apps_share(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    port = free_port()
    await publish_abroad(host, far, gate, route(port, 1))
    assert not any(door.udp for door in host.edge._routes.doors)
    shared, machine = AppAddress(app=AppName("shop"), ip="198.51.100.1", shared=True), udp_route(port, 1, publish="")
    routes = Routes()
    routes.replace([machine], (HOST,), (shared,))
    assert not routes.of_region(machine.app, port, "", inside=False, udp=True)
    routes.replace([machine], (HOST,), (replace(shared, shared=False),))
    assert set(routes.of_region(machine.app, port, "", inside=False, udp=True)) == {machine.id}
    assert not routes.of_region(machine.app, port, "", inside=False)
