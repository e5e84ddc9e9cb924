"""From a request to a connection: who is asked next when a machine takes none."""

import asyncio
import socket

import msgspec
import pytest

from hawker.config.machine import Port
from hawker.edge.dialing import _connect
from hawker.edge.gates import Gate
from hawker.edge.routes import ServiceTarget
from hawker.edge.splice import Side
from tests.edge.edge_kit import HOST, OK, PlayedHost, app_server, ask, get, route, says
from tests.ports import free_port
from tests.waiting import eventually


async def test_a_machine_that_refuses_costs_the_client_nothing_while_another_is_there(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        broken, well = route(port, free_port(), handlers=("http",)), route(port, inside, handlers=("http",))
        await host.publish(broken, well)
        for machine in (broken, well):
            host.edge.gates.of[machine.id].answered(0)  # as if both had taken connections before
        for _ in range(6):
            assert b"200 OK" in await ask(port, get())
        assert host.edge.gates.of[broken.id].total == 0


async def test_requests_in_turn_reach_every_machine_and_none_waits_for_one_that_does_not_listen_yet(
    host: PlayedHost,
) -> None:
    async with app_server(says(OK)) as first, app_server(says(OK)) as second:
        port = free_port()
        machines = [route(port, inside, handlers=("http",)) for inside in (first, second, free_port())]
        await host.publish(*machines)
        host.edge.gates.of[machines[0].id].answered(0)
        for _ in range(12):
            assert b"200 OK" in await ask(port, get())
        taken = [host.edge.gates.of[machine.id].proven for machine in machines]
        assert taken == [{0}, {0}, set()]


async def test_an_app_that_begins_to_listen_late_is_waited_for(host: PlayedHost) -> None:
    inside, port = free_port(), free_port()
    machine = route(port, inside, handlers=("http",))
    await host.publish(machine)
    asked = asyncio.gather(ask(port, get()))
    await eventually(lambda: host.edge.gates.of[machine.id].total == 1)
    server = await asyncio.start_server(says(OK), HOST, inside)
    assert b"200 OK" in (await asked)[0]
    server.close()


async def test_an_address_is_tried_after_the_other(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        machine = msgspec.structs.replace(route(port, inside, handlers=("http",)), hosts=("127.0.0.9", HOST))
        await host.publish(machine)
        assert b"200 OK" in await ask(port, get())
        assert host.edge.gates.of[machine.id].proven == {0}


@pytest.mark.parametrize(("crowd", "most"), [(1, 128 << 10), (100, 32 << 10)])
async def test_of_a_machine_that_pours_little_waits_to_be_read(host: PlayedHost, crowd: int, most: int) -> None:
    async with app_server(says(OK)) as inside:
        machine = route(free_port(), inside, handlers=("http",))
        target, gate = ServiceTarget(machine, 0, machine.services[0], Port()), Gate(machine, 0.0)
        gate.total = crowd
        side = await _connect(gate, target, Side)
        assert side.transport is not None
        connection = side.transport.get_extra_info("socket")
        assert most / 4 <= connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= most
        side.transport.close()
