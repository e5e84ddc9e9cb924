"""UDP through the edge: whose datagrams reach which machine, what comes back, and what floods cost."""

import asyncio
import socket
from contextlib import ExitStack

import msgspec
import pytest

from hawker.edge import datagrams, machine_socket
from hawker.edge.datagrams import WAITING, FlowTable
from hawker.fair.table import EDGE_FLOWS, EDGE_FLOWS_OF_ADDRESS
from hawker.feed import CloseMachine
from hawker.ids import InstanceId
from hawker.machine import State
from hawker.token_bucket import Allowance, TokenBuckets
from tests.edge.edge_kit import HOST, PlayedHost, route
from tests.edge.udp_kit import ask, client, udp_app, udp_route
from tests.ports import free_port
from tests.waiting import eventually

replace = msgspec.structs.replace


async def test_datagrams_go_both_ways_and_each_client_gets_its_own_answer(host: PlayedHost) -> None:
    async with udp_app() as (inside, app):
        port = free_port()
        machine = udp_route(port, inside)
        await host.publish(machine)
        with client(port) as one, client(port) as two:
            assert await ask(one, b"1") == b"got 1" and await ask(two, b"2") == b"got 2"
            assert await ask(one, b"x" * 9000) == b"got " + b"x" * 9000, "as large as datagrams are"
            assert len(host.edge.datagrams) == 2
            assert host.edge.gates.of[machine.id].total == host.edge.gates.of[machine.id].lasting == 2
        told = {each.app: (each.bytes_in, each.bytes_out) for each in host.edge.figures.apps({})}
        assert told[machine.app][1] >= 9000 + 4 + 5 + 5 and host.counted("flows") == 2
        assert len(app.heard) >= 3


async def test_a_port_may_be_one_of_tcp_and_one_of_udp(host: PlayedHost) -> None:
    async def name(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"tcp")
        writer.write_eof()

    server = await asyncio.start_server(name, HOST, 0)
    async with server, udp_app(b"udp") as (inside, _):
        port = free_port()
        await host.publish(udp_route(port, inside), route(port, server.sockets[0].getsockname()[1]))
        with client(port) as sender:
            assert await ask(sender, b"?") == b"udp ?"
        reader, writer = await asyncio.open_connection(HOST, port)
        assert await reader.read() == b"tcp"
        writer.close()


async def test_an_answer_comes_from_the_address_that_was_sent_to(host: PlayedHost) -> None:
    async with udp_app() as (inside, _):
        port = free_port()
        machine = replace(udp_route(port, inside), publish="0.0.0.0")
        await host.publish(machine)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.connect(("127.0.0.9", port))  # the kernel lets in what comes from there, and nothing else
            assert await ask(sender, b"1") == b"got 1"


async def test_a_client_of_ipv6_is_served(host: PlayedHost) -> None:
    async with udp_app() as (inside, _):
        port = free_port()
        await host.publish(replace(udp_route(port, inside), publish="::"))
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.connect(("::1", port))
            assert await ask(sender, b"6") == b"got 6"


async def test_a_datagram_wakes_a_machine_and_waits_for_its_program(host: PlayedHost) -> None:
    port, inside = free_port(), free_port()
    machine = udp_route(port, inside, state=State.STOPPED)
    host.worker.on_wake = lambda asleep: replace(asleep, state=State.STARTED, instance=InstanceId("new"))
    await host.publish(machine)
    with client(port) as sender:
        sender.send(b"hello")
        await eventually(lambda: host.edge.gates.of[machine.id].total == 1)
        async with udp_app(port=inside):
            loop = asyncio.get_running_loop()
            assert await asyncio.wait_for(loop.sock_recv(sender, 100), 60) == b"got hello"
    assert host.worker.wakes == [machine.id]


async def test_datagrams_of_a_flow_that_waits_are_kept_up_to_four_and_the_rest_counted_as_dropped(
    host: PlayedHost,
) -> None:
    async with udp_app() as (inside, app):
        port = free_port()
        machine = udp_route(port, inside, state=State.STOPPED)
        await host.publish(machine)
        with client(port) as sender:
            for number in range(7):
                sender.send(b"%d" % number)
            await eventually(lambda: host.counted("datagrams_dropped") == 3)
            assert host.counted("datagrams_in") == 7 and host.counted("flows") == 1
            host.worker.put(replace(machine, state=State.STARTED, instance=InstanceId("i2")))
            await eventually(lambda: len(app.heard) >= 4)
        assert sorted(set(app.heard)) == [b"0", b"1", b"2", b"3"]


async def test_a_program_that_does_not_listen_is_told_of_in_the_apps_log(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_socket, "_TRIES", 2)
    port, inside = free_port(), free_port()
    machine = udp_route(port, inside)
    await host.publish(machine)
    with client(port) as sender:
        sender.send(b"hello")
        await eventually(lambda: any(line.code == "PC01" for line in host.worker.lines))
        await eventually(lambda: not len(host.edge.datagrams))
    assert host.edge.gates.of[machine.id].total == 0
    assert f"UDP port {inside}" in host.worker.lines[-1].text


async def test_a_flow_goes_to_another_machine_once_its_own_is_closed(host: PlayedHost) -> None:
    async with udp_app(b"one") as (first, _), udp_app(b"two") as (second, _):
        port = free_port()
        one, two = udp_route(port, first), udp_route(port, second)
        await host.publish(one)
        with client(port) as sender:
            assert await ask(sender, b"?") == b"one ?"
            await host.publish(two)
            assert await ask(sender, b"?") == b"one ?", "it stays where it is"
            assert one.instance is not None
            host.worker.say(CloseMachine(call=1, id=one.id, instance=one.instance, wait_s=0.0))
            await eventually(lambda: not host.edge.gates.of[one.id].is_open)
            assert await ask(sender, b"?") == b"two ?"
        assert host.edge.gates.of[one.id].total == 0, "and is not counted where it was"


async def test_a_machine_is_left_by_flows_that_are_silent(host: PlayedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    async with udp_app() as (inside, app):
        port = free_port()
        machine = udp_route(port, inside)
        await host.publish(machine)
        with client(port) as answered, client(port) as unanswered:
            await ask(answered, b"1")
            app.ignores = b"2"
            unanswered.send(b"2")
            await eventually(lambda: len(host.edge.datagrams) == 2)
            monkeypatch.setattr(datagrams, "UNANSWERED_S", 0.0)
            await eventually(lambda: len(host.edge.datagrams) == 1)
            monkeypatch.setattr(datagrams, "ANSWERED_S", 0.0)
            await eventually(lambda: not len(host.edge.datagrams))
        assert host.edge.gates.of[machine.id].total == 0


async def test_a_flood_from_forged_addresses_keeps_no_client_out_that_was_answered(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datagrams, "EDGE_FLOWS", replace(EDGE_FLOWS, total=8, each=8, reserve=0))
    monkeypatch.setattr(host.edge.datagrams, "_table", FlowTable())
    async with udp_app() as (inside, app):
        port = free_port()
        await host.publish(udp_route(port, inside))
        with client(port) as mine:
            assert await ask(mine, b"1") == b"got 1"
            app.ignores = b"flood"
            for _ in range(40):  # each is another client, to the edge
                with client(port) as other:
                    other.send(b"flood")
            await eventually(lambda: host.counted("flows") > 10)
            await eventually(lambda: host.counted("datagrams_in") >= 41)
            assert len(host.edge.datagrams) <= 8
            before = host.counted("flows")
            assert await ask(mine, b"2") == b"got 2" and host.counted("flows") == before, "it is still the same flow"
            with client(port) as newcomer:
                assert await ask(newcomer, b"3") == b"got 3", "and there is room for who comes"


async def test_a_client_has_so_many_flows_and_another_one_its_own(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datagrams, "EDGE_FLOWS_OF_ADDRESS", replace(EDGE_FLOWS_OF_ADDRESS, each=2))
    monkeypatch.setattr(host.edge.datagrams, "_table", FlowTable())
    async with udp_app() as (inside, app):
        port = free_port()
        await host.publish(udp_route(port, inside))
        with client(port) as one, client(port) as two, client(port) as three:
            assert await ask(one, b"1") == b"got 1" and await ask(two, b"2") == b"got 2"
            three.send(b"3")
            await eventually(lambda: host.counted("datagrams_dropped") == 1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.setblocking(False)
            other.bind(("127.0.0.2", 0))
            other.connect((HOST, port))
            assert await ask(other, b"4") == b"got 4"
        assert b"3" not in app.heard


async def test_a_flood_at_an_app_that_sleeps_is_mostly_dropped(host: PlayedHost) -> None:
    port = free_port()
    machines = [udp_route(port, free_port(), state=State.STOPPED, soft=1) for _ in range(3)]
    host.worker.on_wake = lambda asleep: replace(asleep, state=State.STARTING)
    await host.publish(*machines)
    with ExitStack() as senders:  # all at once: the port of one that is gone may be the next one's
        for _ in range(2 * WAITING):
            senders.enter_context(client(port)).send(b"flood")
    await eventually(lambda: host.counted("datagrams_in") == 2 * WAITING)
    await eventually(lambda: host.counted("datagrams_dropped") == WAITING)
    assert len(host.edge.datagrams) == WAITING and host.edge.held == WAITING


async def test_an_app_has_so_many_new_flows_a_second(host: PlayedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    few = TokenBuckets(Allowance(0.001, 2.0))
    monkeypatch.setattr(host.edge.datagrams, "_begun", few)
    async with udp_app() as (inside, app):
        port = free_port()
        await host.publish(udp_route(port, inside))
        with client(port) as one, client(port) as two, client(port) as three:
            assert await ask(one, b"1") == b"got 1" and await ask(two, b"2") == b"got 2"
            three.send(b"3")
            await eventually(lambda: host.counted("datagrams_dropped") == 1)
            assert await ask(one, b"4") == b"got 4", "those that there are go on"
        assert b"3" not in app.heard


async def test_a_machine_nobody_may_start_is_told_of_and_holds_nothing(host: PlayedHost) -> None:
    port = free_port()
    await host.publish(udp_route(port, free_port(), state=State.STOPPED, autostart=False))
    with client(port) as sender:
        sender.send(b"hello")
        await eventually(lambda: [line.code for line in host.worker.lines] == ["PR01"])
    assert not len(host.edge.datagrams) and not host.edge.held


async def test_a_door_that_is_closed_ends_its_flows(host: PlayedHost) -> None:
    async with udp_app() as (inside, _):
        port = free_port()
        machine = udp_route(port, inside)
        await host.publish(machine)
        with client(port) as sender:
            await ask(sender, b"1")
            host.worker.put(replace(machine, services=()))
            await eventually(lambda: not len(host.edge.datagrams))
