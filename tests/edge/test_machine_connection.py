"""Connections that rest between two requests: none outlives its time or its instance."""

import asyncio
from unittest.mock import Mock

from hawker.edge.hop_frames import HopQuestion
from hawker.edge.hop_line import HopLine, HopStream
from hawker.edge.machine_connection import KEPT_S, MachineConnection, MachinePool
from hawker.ids import AppName, MachineId
from tests.edge.edge_kit import OK, PlayedHost, app_server, ask, get, route, says
from tests.edge.test_gates import target_of
from tests.ports import free_port


def connection() -> tuple[MachineConnection, Mock]:
    made, transport = MachineConnection(), Mock(spec=asyncio.Transport)
    transport.get_extra_info.return_value = None
    transport.is_closing.return_value = False
    transport.get_write_buffer_size.return_value = 0
    made.connection_made(transport)
    return made, transport


async def test_a_connection_rests_for_its_time_and_is_used_again() -> None:
    now = [0.0]
    pool, target, (kept, transport) = (
        MachinePool[MachineConnection](lambda: now[0]),
        target_of(route(80, 1)),
        connection(),
    )
    pool.keep(target, kept)
    assert pool.take(target) is kept and pool.take(target) is None
    pool.keep(target, kept)
    now[0] = KEPT_S
    assert pool.take(target) is None
    transport.close.assert_called()


async def test_a_connection_that_was_closed_or_said_something_is_not_used_again() -> None:
    pool, target = MachinePool[MachineConnection](lambda: 0.0), target_of(route(80, 1))
    (closed, _), (talking, _) = connection(), connection()
    for kept in (closed, talking):
        pool.keep(target, kept)
    closed.connection_lost(None)
    talking.data_received(b"unasked")
    assert pool.take(target) is None


async def test_a_connection_whose_machine_has_yet_to_read_is_not_used_again() -> None:
    pool, target, (kept, transport) = MachinePool[MachineConnection](lambda: 0.0), target_of(route(80, 1)), connection()
    transport.get_write_buffer_size.return_value = 1
    pool.keep(target, kept)
    assert pool.take(target) is None
    transport.close.assert_called_once()


async def test_a_connection_that_asks_a_gate_hears_its_answer_though_the_client_takes_nothing() -> None:
    line = Mock(spec=HopLine, transport=Mock(is_closing=lambda: False))
    kept = MachineConnection()
    kept.connection_made(HopStream(line, kept, HopQuestion(app=AppName("shop"), machine=MachineId("m1"), service=0)))
    kept.may_read(reading=False)
    line.pause.assert_not_called()
    assert isinstance(kept.transport, HopStream)
    kept.transport.asks = False
    kept.may_read(reading=False)
    line.pause.assert_called_once()


async def test_a_connection_does_not_outlive_its_instance_or_its_time() -> None:
    now, (first, one), (second, two) = [0.0], connection(), connection()
    pool, target = MachinePool[MachineConnection](lambda: now[0]), target_of(route(80, 1))
    pool.keep(target, first)
    pool.drop(target.machine.id)
    one.close.assert_called()
    pool.keep(target, second)
    now[0] = KEPT_S + 1
    pool.sweep()
    two.close.assert_called()


async def test_requests_of_type_requests_share_a_connection_and_others_do_not(host: PlayedHost) -> None:
    for kind, expected in (("requests", 1), ("connections", 3)):
        connections = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            await says(OK)(reader, writer)

        async with app_server(serve) as inside:
            port = free_port()
            await host.publish(route(port, inside, handlers=("http",), kind=kind))
            for _ in range(3):
                assert b"200 OK" in await ask(port, get())
        assert connections == expected
