"""Raw TCP through the edge: both directions, half-close, nobody there."""

import asyncio
from contextlib import suppress

from hawker.machine import State
from tests.edge.edge_kit import HOST, PlayedHost, app_server, free_port, route


async def echo_to_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"got " + await reader.read())
    writer.write_eof()


async def test_a_half_close_is_passed_on_and_the_answer_comes_back(host: PlayedHost) -> None:
    async with app_server(echo_to_the_end) as inside:
        port = free_port()
        await host.publish(route(port, inside))
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"x" * 1_000_000)
        writer.write_eof()
        assert await reader.read() == b"got " + b"x" * 1_000_000
        writer.close()


async def test_a_server_that_speaks_first_is_heard(host: PlayedHost) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready\r\n")
        await reader.read()

    async with app_server(greet) as inside:
        port = free_port()
        await host.publish(route(port, inside))
        reader, writer = await asyncio.open_connection(HOST, port)
        assert await reader.readline() == b"220 ready\r\n"
        writer.close()


async def test_a_connection_counts_until_both_ends_are_done(host: PlayedHost) -> None:
    async with app_server(echo_to_the_end) as inside:
        port = free_port()
        machine = route(port, inside, hard=1)
        await host.publish(machine)
        reader, writer = await asyncio.open_connection(HOST, port)
        second_reader, second = await asyncio.open_connection(HOST, port)
        second.write(b"later")
        second.write_eof()
        writer.write_eof()
        assert await reader.read() == b"got "
        assert await second_reader.read() == b"got later"
        for each in (writer, second):
            each.close()


async def test_a_machine_that_nobody_may_start_gives_a_reset(host: PlayedHost) -> None:
    port = free_port()
    await host.publish(route(port, free_port(), state=State.STOPPED, autostart=False))
    reader, writer = await asyncio.open_connection(HOST, port)
    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
