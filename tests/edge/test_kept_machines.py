"""Connections to machines of other hosts that requests use one after the other."""

import asyncio

import msgspec
import pytest

from hawker.auth.node_certificate import identity_of
from hawker.edge.hop_frames import HopAnswer, HopFrame, HopQuestion, read_word
from hawker.edge.hop_line import HopLine, HopStream
from hawker.edge.hops import identity_in
from hawker.feed import NODE_IDENTITY, GatePlace
from hawker.http.mutual_tls import Handshake
from tests.edge.edge_kit import (
    HOST,
    KEY,
    OK,
    PlayedHost,
    app_server,
    ask,
    get,
    publish_far,
    read_request,
    route,
    says,
    seen_from_afar,
)
from tests.ports import free_port
from tests.waiting import eventually

replace = msgspec.structs.replace


@pytest.mark.parametrize(("kind", "most"), [("requests", 3), ("connections", 6)])
async def test_requests_of_type_requests_share_a_connection_of_a_machine_there(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, kind: str, most: int
) -> None:
    """Those that may be done twice, once the gate is known to keep one; the first and a POST have their own."""
    connections = 0

    async def counts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await says(OK)(reader, writer)

    async with app_server(counts) as inside:
        port = free_port()
        machine = route(port, inside, handlers=("http",), kind=kind)
        await publish_far(host, far, gate, machine)
        for method in ("GET", "GET", "POST", "GET", "DELETE", "GET"):
            assert b"200 OK" in await ask(port, get(method=method))
            await eventually(lambda: far.edge.gates.of[machine.id].total == 0)
        assert connections == most
        told = {each.app: each.verdicts for each in host.edge.figures.apps({})}
        assert told == {machine.app: {"go": 6}} and host.counted("retries") == 0


async def test_a_machine_that_closes_a_connection_that_rested_there_costs_nothing(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    asked = list[bytes]()

    async def forgets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await read_request(reader))
        writer.write(OK)
        asked.append(await read_request(reader))  # and leaves without an answer

    async with app_server(forgets) as inside:
        port = free_port()
        machine = route(port, inside, handlers=("http",), kind="requests")
        await publish_far(host, far, gate, machine)
        for method in ("GET", "GET", "GET", "POST"):
            assert b"200 OK" in await ask(port, get(method=method))
            await eventually(lambda: far.edge.gates.of[machine.id].total == 0)
        assert len(asked) == 5 and host.counted("retries") == 1


async def test_a_machine_that_says_more_than_its_answer_is_heard_by_nobody_else(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    """Its connection is closed, and what it said too much is in no answer."""
    more = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
    async with app_server(says(OK + more)) as inside:
        port = free_port()
        machine = route(port, inside, handlers=("http",), kind="requests")
        await publish_far(host, far, gate, machine)
        for _ in range(5):
            answer = await ask(port, get())
            assert answer.endswith(b"\r\n\r\nok") and answer.count(b"HTTP/1.1") == 1
        await eventually(lambda: far.edge.gates.of[machine.id].total == 0)


async def test_an_older_gate_is_asked_in_its_own_words(host: PlayedHost, gate: GatePlace) -> None:
    """It says that it keeps nothing: nothing goes with the question, and each conversation is closed by both sides."""
    said = list[HopFrame]()
    identity = identity_in(host.folder)

    class OlderGate:
        def __init__(self) -> None:
            self.line = HopLine(self.hear, lambda: said.append(HopFrame.CLOSE), lambda error: None)

        def hear(self, kind: HopFrame, data: bytes) -> None:
            said.append(kind)
            assert not read_word(data, HopQuestion).first
            self.line.say(HopFrame.ANSWER, HopAnswer(let_in=True))
            self.line.open(OldMachine())

    class OldMachine(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            assert isinstance(self.transport, HopStream) and b"connection: close" in data
            said.append(HopFrame.DATA)
            self.transport.write(OK)

    place = replace(gate, port=free_port())
    (host.folder / NODE_IDENTITY).write_text(identity_of(place.node, [KEY]))
    server = await asyncio.get_running_loop().create_server(
        lambda: Handshake(identity.server(), OlderGate().line), HOST, place.port
    )
    port = free_port()
    await host.publish(seen_from_afar(route(port, 1, handlers=("http",), kind="requests"), place))
    for _ in range(3):
        assert b"200 OK" in await ask(port, get())
    server.close()
    await eventually(lambda: said == [HopFrame.QUESTION, HopFrame.DATA, HopFrame.CLOSE] * 3)


async def test_a_gate_that_says_nothing_to_first_bytes_is_waited_for_no_longer_than_another(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[bytes]()
    async with app_server(says(OK, seen)) as there, app_server(says(OK)) as inside:
        port = free_port()
        far_one = route(port, there, handlers=("http",), kind="requests")
        await publish_far(host, far, gate, far_one)
        assert b"200 OK" in await ask(port, get())
        monkeypatch.setattr("hawker.edge.hops.ANSWER_S", 0.2)
        monkeypatch.setattr(far.edge.hops, "begin", lambda host, question: None)
        asked = asyncio.create_task(ask(port, get()))
        await eventually(lambda: host.edge.gates.of[far_one.id].total == 1)
        await host.publish(route(port, inside, handlers=("http",)))
        assert b"200 OK" in await asked and len(seen) == 1
        assert host.edge.gates.of[far_one.id].is_doubted and host.counted("retries") == 1
