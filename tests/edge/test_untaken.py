"""HTTP/2 through the edge with clients that take nothing of their answers: what they hold, and for how long."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import anyio.lowlevel
import h2.config
import h2.connection
import h2.settings
import pytest

from hawker.clock import SystemClock
from hawker.edge import nghttp2
from hawker.edge.http2_connection import Http2Connection
from hawker.http.untaken import CROWD_BYTES
from tests.edge.edge_kit import HOST, PlayedHost, Serve, app_server, deaf_client, given_up, looked, route, says
from tests.edge.test_http2_connection import Http2Client, asking, ping
from tests.ports import free_port
from tests.waiting import eventually


def page(size: int) -> Serve:
    return says(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (size, b"x" * size))


async def the_connection(host: PlayedHost) -> Http2Connection:
    """The only one, as the edge has it."""
    there = host.edge._http._live
    await eventually(lambda: any(isinstance(each, Http2Connection) for each in there))
    (connection,) = there
    assert isinstance(connection, Http2Connection)
    return connection


@asynccontextmanager
async def deaf(host: PlayedHost, serve: Serve) -> AsyncIterator[tuple[Http2Client, Http2Connection]]:
    """A client that takes nothing of any stream before it says so, and how the edge has it."""
    async with app_server(serve) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",)))
        reader, writer = await asyncio.open_connection(HOST, port)
        client = Http2Client(reader, writer)
        client.takes = False
        client.begin()
        client.speaks.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
        client.flush()
        host.tasks.start_soon(client.hear)
        connection = await the_connection(host)
        await eventually(lambda: client.speaks.remote_settings.max_concurrent_streams == nghttp2.MAX_STREAMS)
        try:
            yield client, connection
        finally:
            writer.close()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How much later it is for everybody."""
    later, now = [0.0], SystemClock.monotonic
    monkeypatch.setattr(SystemClock, "monotonic", lambda clock: now() + later[0])
    return later


async def test_answers_that_a_client_does_not_take_have_a_bound_and_hold_up_others_for_a_time(
    host: PlayedHost, later: list[float]
) -> None:
    size = 250_000
    async with deaf(host, page(size)) as (client, connection):
        for _ in range(40):
            client.ask(asking())
        await eventually(lambda: connection.untaken.crowded)
        healthy = client.ask(asking())
        client.speaks.increment_flow_control_window(1_000_000, healthy)
        client.speaks.increment_flow_control_window(1_000_000)
        client.flush()
        await eventually(lambda: sum(gate.total for gate in host.edge.gates.of.values()) > 30)
        for _ in range(100):  # so much goes on meanwhile
            client.raw(ping(1))
            await anyio.lowlevel.checkpoint()
        assert connection._session.waiting < CROWD_BYTES + 2 * size
        while healthy not in client.ended:
            assert not client.lost and healthy not in client.resets
            await looked(later, 8)
        assert len(client.resets) > 2 and bytes(client.bodies[healthy]) == b"x" * size


async def test_a_stream_of_which_nothing_is_taken_is_reset_and_one_of_which_little_is_taken_goes_on(
    host: PlayedHost, later: list[float]
) -> None:
    async with deaf(host, page(1000)) as (client, connection):
        stuck, slow = client.ask(asking()), client.ask(asking())
        await eventually(lambda: connection._session.waiting == 2000)
        for taken in range(1, 6):
            client.speaks.increment_flow_control_window(1, slow)
            client.flush()
            await eventually(lambda: len(client.bodies.get(slow, b"")) == taken)  # noqa: B023
            await looked(later, 25)
        await eventually(lambda: stuck in client.resets)
        assert slow not in client.resets and not client.lost


async def test_a_client_that_shuts_its_connection_is_given_up(host: PlayedHost, later: list[float]) -> None:
    """Its kernel takes nothing more."""
    async with app_server(page(30_000_000)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",)))
        with closing(deaf_client(port)) as client:
            speaks = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
            speaks.initiate_connection()
            speaks.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: (1 << 31) - 1})
            speaks.increment_flow_control_window(1 << 30)
            speaks.send_headers(1, asking(), end_stream=True)
            client.send(speaks.data_to_send())
            connection = await the_connection(host)
            await eventually(lambda: connection._blocked and connection.untaken._connection.on_its_way)
            await given_up(connection, later)
        await eventually(lambda: not any(gate.total for gate in host.edge.gates.of.values()))
