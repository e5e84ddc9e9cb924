"""Played UDP: who hears, who is refused, what is lost, and what a dead process does."""

import asyncio
import socket

import pytest

from hawker.ids import NodeId
from hawker.sim.edge.datagram_wires import PlayedSocket
from hawker.sim.edge.wires import CLIENT, NO_EDGE, OUTSIDE, Wires
from hawker.sim.harness.loop import LoopClock
from tests.sim.edge.test_wires import in_virtual_time

HOST, ADDRESS, PORT = NodeId("00000001"), "10.0.0.1", 53
PLACE = ADDRESS, PORT


def heard(which: PlayedSocket) -> list[bytes]:
    found = []
    while True:
        try:
            found.append(which.recv(100))
        except BlockingIOError:
            return found


def test_a_datagram_comes_with_both_its_addresses_and_its_answer_comes_back() -> None:
    async def play(wires: Wires) -> None:
        net, loop = wires.datagrams, asyncio.get_running_loop()
        taker, client = net.bind(HOST, 0, *PLACE), net.bind(OUTSIDE, NO_EDGE, CLIENT)
        said: list[bytes] = []

        def read() -> None:
            data, extra, _, sender = taker.recvmsg(100, 100)
            assert sender == client.own and extra[0][2][4:8] == socket.inet_aton(ADDRESS)
            taker.sendmsg([b"got ", data], (), 0, sender)

        loop.add_reader(taker, read)  # type: ignore[arg-type]
        client.watch(lambda: said.append(client.recv(100)))
        client.sendto(b"1", PLACE)
        await LoopClock().sleep(1)
        assert said == [b"got 1"]
        loop.remove_reader(taker)  # type: ignore[arg-type]
        client.sendto(b"2", PLACE)
        await LoopClock().sleep(1)
        assert said == [b"got 1"] and heard(taker) == [b"2"], "it waits for a reader"

    in_virtual_time(play)


def test_a_socket_connected_to_a_port_that_nobody_has_is_told_once() -> None:
    async def play(wires: Wires) -> None:
        net = wires.datagrams
        net.bind(HOST, NO_EDGE, ADDRESS, PORT + 1)
        caller = net.bind(HOST, 0, ADDRESS, peer=PLACE)
        assert net.connected_to(PLACE) == 1
        caller.send(b"1")
        await LoopClock().sleep(1)
        with pytest.raises(ConnectionRefusedError):
            caller.recv(100)
        assert heard(caller) == []
        taker = net.bind(HOST, NO_EDGE, *PLACE)
        caller.send(b"2")
        await LoopClock().sleep(1)
        assert heard(taker) == [b"2"] and heard(caller) == []
        caller.close()
        assert net.connected_to(PLACE) == 0

    in_virtual_time(play)


def test_a_host_without_power_hears_nothing_and_some_datagrams_are_lost_on_their_way() -> None:
    async def play(wires: Wires) -> None:
        net, client = wires.datagrams, wires.datagrams.bind(OUTSIDE, NO_EDGE, CLIENT)
        taker = net.bind(HOST, 0, *PLACE)
        net.lost = 0.5
        for _ in range(40):
            client.sendto(b"x", PLACE)
        await LoopClock().sleep(1)
        assert 5 < len(heard(taker)) < 35
        net.lost = 0.0
        wires.power_off(HOST)
        assert taker.closed
        wires.power_on(HOST)
        other = net.bind(HOST, 0, *PLACE)
        client.sendto(b"y", PLACE)
        await LoopClock().sleep(1)
        assert heard(other) == [b"y"] and heard(taker) == []

    in_virtual_time(play)


def test_processes_share_out_who_sends_until_one_is_dead() -> None:
    async def play(wires: Wires) -> None:
        net = wires.datagrams
        first, second = net.bind(HOST, 0, *PLACE), net.bind(HOST, 1, *PLACE)
        clients = [net.bind(OUTSIDE, NO_EDGE, CLIENT) for _ in range(4)]
        for client in clients:
            client.sendto(b"1", PLACE)
        await LoopClock().sleep(1)
        assert len(heard(first)) == len(heard(second)) == 2
        wires.end_process(HOST, 0)
        for client in clients:
            client.sendto(b"2", PLACE)
        await LoopClock().sleep(1)
        assert first.closed and len(heard(second)) == 4

    in_virtual_time(play)
