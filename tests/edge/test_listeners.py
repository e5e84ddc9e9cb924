"""Where the edge listens: what routes want, as the warden gives it."""

import asyncio
import socket

import msgspec

from hawker.edge.http_connection import HttpConnection
from hawker.feed import AllMachines, AppAddress, MachineGone
from hawker.machine import State
from tests.edge.edge_kit import HOST, PlayedHost, route
from tests.ports import free_port
from tests.waiting import eventually


async def test_a_port_is_listened_at_while_a_machine_publishes_it(host: PlayedHost) -> None:
    machine = route(free_port(), 1)
    await host.publish(machine)
    host.worker.put(msgspec.structs.replace(machine, state=State.STOPPED))
    other = route(free_port(), 1)
    await host.publish(other)
    assert len(list(host.edge.bound())) == 2, "a machine that sleeps is still reached"
    host.worker.say(MachineGone(id=machine.id))
    await eventually(lambda: len(list(host.edge.bound())) == 1)
    await eventually(lambda: len(host.sockets.bound) == 1)


async def test_an_address_that_an_app_has_alone_is_told_apart(host: PlayedHost) -> None:
    machine = route(free_port(), 1)
    await host.publish(machine)
    assert [each.owned for each in host.edge.bound()] == [False]
    own = (AppAddress(app=machine.app, ip=HOST),)
    host.worker.say(AllMachines(machines=(machine,), addresses=(HOST,), app_addresses=own))
    await eventually(lambda: [each.owned for each in host.edge.bound()] == [True])


async def test_the_kernel_finds_out_that_a_client_is_gone(host: PlayedHost) -> None:
    port = free_port()
    await host.publish(route(port, 1, handlers=("http",)))
    _, writer = await asyncio.open_connection(HOST, port)
    (connection,) = await eventually(lambda: list(host.edge._http._live))
    assert isinstance(connection, HttpConnection) and connection._transport is not None
    there = connection._transport.get_extra_info("socket")
    assert there.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    asked = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_NODELAY)
    assert [there.getsockopt(socket.IPPROTO_TCP, each) for each in asked] == [30, 30, 4, 1]
    writer.close()
