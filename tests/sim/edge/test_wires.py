"""Played TCP: order, back pressure, half-close, resets, and hosts that say nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import pytest

from hawker.ids import NodeId
from hawker.sim.edge.wires import HERE, LIFE, NO_EDGE, OUTSIDE, PROCESS, EdgeLoop, PlayedTransport, Wires
from hawker.sim.harness.loop import LoopClock

HOST, ADDRESS, PORT = NodeId("00000001"), "10.0.0.1", 80


class Heard(asyncio.Protocol):
    """What a test's end of a connection has heard."""

    def __init__(self, *, stays: bool = True) -> None:
        self.data, self.heard_last, self.lost, self.held = b"", False, False, 0
        self.error: Exception | None = None
        self.transport: PlayedTransport | None = None
        self._stays = stays

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, PlayedTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.heard_last = True
        return self._stays

    def connection_lost(self, error: Exception | None) -> None:
        self.lost, self.error = True, error

    def pause_writing(self) -> None:
        self.held += 1


def in_virtual_time(play: Callable[[Wires], Awaitable[None]]) -> None:
    async def begin() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, EdgeLoop)
        await play(loop.wires)

    anyio.run(begin, backend_options={"loop_factory": EdgeLoop})


async def joined(wires: Wires, *, stays: bool = True) -> tuple[PlayedTransport, Heard, Heard]:
    server = Heard(stays=stays)
    wires.listen(HOST, ADDRESS, PORT, lambda: server)
    transport, client = await wires.connect(Heard, ADDRESS, PORT)
    return transport, client, server


def test_bytes_come_in_order_and_an_end_comes_after_them() -> None:
    async def play(wires: Wires) -> None:
        transport, client, server = await joined(wires)
        for number in range(10):
            transport.write(b"%d" % number)
        transport.write_eof()
        await LoopClock().sleep(1)
        assert server.data == b"0123456789" and server.heard_last and not server.lost
        assert server.transport is not None
        server.transport.write(b"answer")
        server.transport.close()
        await LoopClock().sleep(1)
        assert client.data == b"answer" and client.heard_last

    in_virtual_time(play)


def test_a_reader_that_does_not_read_holds_up_the_writer() -> None:
    async def play(wires: Wires) -> None:
        transport, client, server = await joined(wires)
        assert server.transport is not None
        server.transport.pause_reading()
        transport.set_write_buffer_limits(10)
        transport.write(b"x" * 11)
        await LoopClock().sleep(1)
        assert client.held == 1 and server.data == b""
        server.transport.resume_reading()
        await LoopClock().sleep(1)
        assert len(server.data) == 11

    in_virtual_time(play)


def test_an_abort_is_a_reset_at_the_other_end() -> None:
    async def play(wires: Wires) -> None:
        transport, client, server = await joined(wires)
        transport.abort()
        await LoopClock().sleep(1)
        assert client.lost and isinstance(server.error, ConnectionResetError)

    in_virtual_time(play)


def test_nobody_listens_is_refused_and_no_power_is_silence() -> None:
    async def play(wires: Wires) -> None:
        wires.listen(HOST, ADDRESS, PORT, Heard)
        wires.unlisten(ADDRESS, PORT)
        with pytest.raises(ConnectionRefusedError):
            await wires.connect(Heard, ADDRESS, PORT)
        transport, client, server = await joined(wires)
        wires.power_off(HOST)
        with anyio.move_on_after(30) as scope:
            await wires.connect(Heard, ADDRESS, PORT)
        assert scope.cancelled_caught
        transport.write(b"is anybody there?")
        await LoopClock().sleep(8)
        assert not client.lost and server.data == b""
        await LoopClock().sleep(100)
        assert client.lost

    in_virtual_time(play)


def test_a_cut_link_delays_and_loses_nothing() -> None:
    async def play(wires: Wires) -> None:
        transport, _, server = await joined(wires)
        wires.cut(OUTSIDE, HOST)
        transport.write(b"one")
        transport.write(b"two")
        await LoopClock().sleep(5)
        assert server.data == b""
        wires.heal()
        await LoopClock().sleep(5)
        assert server.data == b"onetwo"

    in_virtual_time(play)


def test_processes_of_one_place_take_turns_and_each_ends_alone() -> None:
    async def play(wires: Wires) -> None:
        servers = [Heard(), Heard()]
        for number, server in enumerate(servers):
            wires.listen(HOST, ADDRESS, PORT, partial(_itself, server), number)
        clients = [(await wires.connect(Heard, ADDRESS, PORT))[1] for _ in servers]
        assert all(server.transport is not None for server in servers)
        wires.end_process(HOST, 0)
        wires.unlisten(ADDRESS, PORT, 0)
        await LoopClock().sleep(1)
        assert sorted(client.lost for client in clients) == [False, True] and not servers[1].lost
        assert wires.listens(ADDRESS, PORT)
        wires.unlisten(ADDRESS, PORT, 1)
        assert not wires.listens(ADDRESS, PORT)

    in_virtual_time(play)


def _itself(protocol: Heard) -> Heard:
    return protocol


def test_a_process_that_ends_has_its_connections_reset() -> None:
    async def play(wires: Wires) -> None:
        _, client, server = await joined(wires)
        wires.end_process(HOST, NO_EDGE)
        await LoopClock().sleep(1)
        assert isinstance(client.error, ConnectionResetError) and server.lost

    in_virtual_time(play)


def test_an_address_with_a_zone_is_one_host_s_and_a_client_may_have_its_own() -> None:
    async def play(wires: Wires) -> None:
        ends = list[tuple[str, ...]]()

        class Server(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                ends.append(tuple(transport.get_extra_info(which)[0] for which in ("sockname", "peername")))

        wires.listen(HOST, f"fdaa::1%{HOST}", PORT, Server)
        await wires.connect(Heard, f"fdaa::1%{HOST}", PORT, "fdaa::2")
        assert ends == [("fdaa::1", "fdaa::2")]
        with pytest.raises(OSError):
            await wires.connect(Heard, "fdaa::1%00000002", PORT)

    in_virtual_time(play)


def test_a_host_of_another_region_is_farther_and_a_client_is_near_all() -> None:
    async def play(wires: Wires) -> None:
        wires.regions = {HOST: "mad", NodeId("2"): "mad", NodeId("3"): "ams"}
        near, far = wires.latency(HOST, NodeId("2")), wires.latency(HOST, NodeId("3"))
        assert wires.latency(HOST, HOST) < near < far
        assert wires.latency(OUTSIDE, NodeId("3")) == wires.latency(OUTSIDE, HOST) == near

    in_virtual_time(play)


def test_a_killed_process_connects_to_nobody_and_the_next_one_does() -> None:
    async def play(wires: Wires) -> None:
        wires.listen(HOST, ADDRESS, PORT, Heard)
        wires.addresses[HOST] = ADDRESS
        HERE.set(HOST)
        PROCESS.set(0)
        await wires.connect(Heard, ADDRESS, PORT)
        wires.end_process(HOST, 0)
        with pytest.raises(OSError, match="dead"):
            await wires.connect(Heard, ADDRESS, PORT)
        LIFE.set(wires.deaths(HOST, 0))
        await wires.connect(Heard, ADDRESS, PORT)
        wires.power_off(HOST)
        wires.power_on(HOST)
        with pytest.raises(OSError, match="dead"):
            wires.expect_life()

    in_virtual_time(play)
