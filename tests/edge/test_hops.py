"""Two hosts that are played: what comes to the edge of one goes into machines of the other, through its gate."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.auth.node_certificate import identity_of
from hawker.config.machine import Port
from hawker.edge.hop_line import FrameKind, HopAnswer, HopLine, HopQuestion, read_word, word
from hawker.edge.hops import NodeIdentity
from hawker.feed import NODE_IDENTITY, GatePlace, MachineRoute
from hawker.ids import AppName, InstanceId, MachineId, NodeId
from hawker.machine import State
from hawker.token_bucket import Allowance, TokenBuckets
from tests.edge.edge_kit import HOST, OK, PlayedHost, app_server, ask, free_port, get, played_host, route, says
from tests.waiting import eventually

replace = msgspec.structs.replace
KEY, OTHER_KEY = b"k" * 32, b"o" * 32


@pytest.fixture
async def far() -> AsyncIterator[PlayedHost]:
    async with played_host() as host:
        yield host


@pytest.fixture
async def gate(host: PlayedHost, far: PlayedHost) -> GatePlace:
    """Of the far host; both are of one cluster."""
    await host.join("a" * 8, KEY)
    return await far.join("b" * 8, KEY)


async def publish(host: PlayedHost, far: PlayedHost, gate: GatePlace, *machines: MachineRoute) -> None:
    """Machines of the far host, which has no address of its own for them, as both hear of them."""
    for machine in machines:
        far.worker.put(replace(machine, publish=""))
        await eventually(lambda: machine.id in far.edge.gates.of)  # noqa: B023
    await host.publish(*(seen_from_afar(machine, gate) for machine in machines))


def seen_from_afar(machine: MachineRoute, gate: GatePlace) -> MachineRoute:
    return replace(machine, gate=gate, instance=None, hosts=())


async def test_a_request_goes_to_a_machine_of_another_host(host: PlayedHost, far: PlayedHost, gate: GatePlace) -> None:
    seen: list[bytes] = []
    async with app_server(says(OK, seen)) as inside:
        port = free_port()
        machine = route(port, inside, handlers=("http",), kind="requests")
        await publish(host, far, gate, machine)
        body = os.urandom(300_000)
        head = get("/x", f"Content-Length: {len(body)}", method="POST")
        for request in (get(), head + body, get()):
            assert b"200 OK" in await ask(port, request)
        assert seen[1].endswith(body) and b"fly-client-ip: 127.0.0.1" in seen[1].lower()
        await eventually(lambda: far.edge.gates.of[machine.id].total == 0)
        assert far.counted("hops") == 3 and host.edge.gates.of[machine.id].total == 0


async def test_requests_of_one_connection_go_on(host: PlayedHost, far: PlayedHost, gate: GatePlace) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await publish(host, far, gate, route(port, inside, handlers=("http",), kind="requests"))
        reader, writer = await asyncio.open_connection(HOST, port)
        for _ in range(3):
            writer.write(b"GET / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"200 OK" in head and await reader.readexactly(2) == b"ok"
        writer.close()


async def test_raw_bytes_go_both_ways_and_each_end_is_passed_on(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async def backwards(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read())[::-1])

    async with app_server(backwards) as inside:
        port = free_port()
        await publish(host, far, gate, route(port, inside))
        reader, writer = await asyncio.open_connection(HOST, port)
        data = os.urandom(2_000_000)
        writer.write(data)
        writer.write_eof()
        assert await reader.read() == data[::-1]
        writer.close()


async def test_a_machine_that_sleeps_there_is_started_there(host: PlayedHost, far: PlayedHost, gate: GatePlace) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        machine = route(port, inside, handlers=("http",), state=State.STOPPED)
        far.worker.on_wake = lambda asleep: replace(asleep, state=State.STARTED, instance=InstanceId("new"))
        await publish(host, far, gate, machine)
        answers = await asyncio.gather(*(ask(port, get()) for _ in range(5)))
        assert all(b"200 OK" in each for each in answers)
        assert far.worker.wakes == [machine.id] and host.worker.wakes == []


async def test_who_leaves_gives_its_place_at_the_other_host_back(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    port = free_port()
    machine = route(port, 1, handlers=("http",), state=State.STOPPED)
    far.worker.on_wake = lambda asleep: replace(asleep, state=State.STARTING)
    await publish(host, far, gate, machine)
    _, writer = await asyncio.open_connection(HOST, port)
    writer.write(get())
    await eventually(lambda: far.edge.held == 1)
    writer.close()
    await eventually(lambda: far.edge.held == 0)
    await eventually(lambda: host.edge.gates.of[machine.id].total == 0)


async def test_the_gate_keeps_the_hard_limit_of_all_edges_together(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    most, inside_now = 0, 0

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most, inside_now
        await reader.readuntil(b"\r\n\r\n")
        inside_now += 1
        most = max(most, inside_now)
        await anyio.sleep(0.01)
        inside_now -= 1
        writer.write(OK)

    async with app_server(slow) as inside:
        port, own = free_port(), free_port()
        machine = route(port, inside, handlers=("http",), hard=2)
        await publish(host, far, gate, machine)
        near = replace(machine, services=(replace(machine.services[0], ports=(port_like(machine, own),)),))
        await far.publish(near)
        answers = await asyncio.gather(*(ask(each, get()) for each in (port, own) * 10))
        assert all(b"200 OK" in each for each in answers) and most <= 2


def port_like(machine: MachineRoute, number: int) -> Port:
    (port,) = machine.services[0].ports or ()
    return replace(port, port=number)


async def test_a_word_that_is_out_of_date_costs_a_moment_and_no_request(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        gone, there = (route(port, inside, handlers=("http",)) for _ in range(2))
        await publish(host, far, gate, there)
        await host.publish(seen_from_afar(gone, gate))
        for _ in range(8):
            assert b"200 OK" in await ask(port, get())
        assert far.counted("hops_refused_PR01") >= 1


async def test_a_machine_of_this_host_comes_first_and_owns_its_port(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    here, there = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhere",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere",
    )
    async with app_server(says(there)) as away, app_server(says(here)) as inside:
        port = free_port()
        await publish(host, far, gate, route(port, away, app="older"))
        assert b"there" in await ask(port, get())
        own = route(port, inside, app="newer")
        await host.publish(own)
        assert b"here" in await ask(port, get())
        await publish(host, far, gate, route(port, away, app="newer"))
        for _ in range(5):
            assert b"here" in await ask(port, get())


async def test_a_host_that_is_not_reached_is_named_in_the_apps_log_only(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hawker.edge.visits.ROUTE_TIMEOUT_S", 0.5)
    port = free_port()
    lost = replace(gate, port=free_port())
    await host.publish(seen_from_afar(route(port, 1, handlers=("http",)), lost))
    answer = await ask(port, get())
    assert b"503" in answer and b"PR03" in answer and b"bbbbbbbb" not in answer
    await eventually(lambda: any("host bbbbbbbb" in line.text for line in host.worker.lines))


async def test_a_gate_that_is_another_node_is_told_nothing(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hawker.edge.visits.ROUTE_TIMEOUT_S", 0.5)
    async with app_server(says(OK)) as inside:
        port = free_port()
        machine = route(port, inside, handlers=("http",))
        await publish(host, far, replace(gate, node=NodeId("c" * 8)), machine)
        assert b"503" in await ask(port, get())
        assert far.counted("hops") == 0


@pytest.mark.parametrize("key", [OTHER_KEY, None])
async def test_nobody_comes_in_who_is_not_of_the_cluster(
    far: PlayedHost, gate: GatePlace, tmp_path: Path, key: bytes | None
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if key is not None:
        (tmp_path / NODE_IDENTITY).write_text(identity_of(NodeId("a" * 8), [key]))
        context.load_cert_chain(tmp_path / NODE_IDENTITY)
    question = HopQuestion(app=AppName("shop"), machine=MachineId("1" * 14), service=0)
    with pytest.raises((OSError, EOFError)):
        async with connected(gate, context) as (reader, writer):
            writer.write(word(FrameKind.QUESTION, question))
            await reader.readexactly(1)
    assert far.edge.held == 0 and far.counted("hops_refused_PR01") == 0


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff\xff\xff",
        b"\x01\x00\x00\x00\x04nope",
        b"\x01\x00\x00\x10\x01",
        b"\x03\x00\x00\x00\x04data",
        b"\x05\0\0\0\0",
    ],
    ids=repr,
)
async def test_what_is_no_question_ends_the_connection(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, said: bytes
) -> None:
    context = NodeIdentity(host.folder).client()
    context.check_hostname = False
    async with connected(gate, context) as (reader, writer):
        writer.write(said + bytes(8192))
        with pytest.raises((OSError, EOFError)):
            await reader.readexactly(1)


async def test_noise_before_tls_and_silence_hold_nothing(
    far: PlayedHost, gate: GatePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hawker.edge.hop_door.ASK_S", 0.1)
    for noise in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(1000)):
        reader, writer = await asyncio.open_connection(HOST, gate.port)
        writer.write(noise)
        with anyio.fail_after(30), suppress(ConnectionResetError):
            assert len(await reader.read()) < 100
        writer.close()


@asynccontextmanager
async def connected(
    gate: GatePlace, context: ssl.SSLContext
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(gate.host, gate.port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def test_newcomers_of_one_network_are_bounded_and_kept_connections_go_on(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await publish(host, far, gate, route(port, inside, handlers=("http",)))
        assert b"200 OK" in await ask(port, get())
        monkeypatch.setattr(far.edge._hops, "_newcomers", TokenBuckets(Allowance(0.001, 1.0)))
        closed = 0
        for _ in range(5):
            reader, writer = await asyncio.open_connection(HOST, gate.port)
            with suppress(ConnectionResetError), anyio.move_on_after(0.5):
                closed += await reader.read() == b""
            writer.close()
        assert closed == 4 and far.counted("hops_too_many") == 4
        assert b"200 OK" in await ask(port, get()), "over the connection that is there"


async def test_new_keys_are_taken_up_without_a_restart(host: PlayedHost, far: PlayedHost, gate: GatePlace) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await publish(host, far, gate, route(port, inside, handlers=("http",)))
        for played, node in ((host, "a" * 8), (far, "b" * 8)):
            (played.folder / NODE_IDENTITY).write_text(identity_of(NodeId(node), [OTHER_KEY, KEY]))
        assert b"200 OK" in await ask(port, get())


async def test_a_connection_is_used_again_and_not_when_it_is_gone(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await publish(host, far, gate, route(port, inside, handlers=("http",)))
        for _ in range(3):
            assert b"200 OK" in await ask(port, get())
        assert len(far.edge._hops.table) == 1
        for line in list(far.edge._hops.table._keys):
            line.give_up()
        for _ in range(3):
            assert b"200 OK" in await ask(port, get())


async def test_an_answer_that_is_broken_off_is_broken_off_for_the_client(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")

    async with app_server(breaks) as inside:
        port = free_port()
        await publish(host, far, gate, route(port, inside, handlers=("http",)))
        with pytest.raises(ConnectionResetError):
            await ask(port, get())
        await eventually(lambda: not far.edge.gates.of or all(not g.total for g in far.edge.gates.of.values()))


names = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=60)


@given(names, names, st.integers(0, 100), st.floats(0, 60), st.booleans(), st.lists(st.integers(1, 40), max_size=20))
def test_a_question_is_read_however_it_comes(
    app: str, machine: str, service: int, hold_s: float, lasting: bool, cuts: list[int]
) -> None:
    question = HopQuestion(
        app=AppName(app), machine=MachineId(machine), service=service, hold_s=hold_s, lasting=lasting
    )
    heard: list[tuple[FrameKind, bytes]] = []
    line = HopLine(lambda kind, data: heard.append((kind, data)), lambda: None, lambda error: None)
    for piece in pieces(2 * word(FrameKind.QUESTION, question), cuts):
        line.data_received(piece)
    assert [(kind, read_word(data, HopQuestion)) for kind, data in heard] == [(FrameKind.QUESTION, question)] * 2


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    found, at = [], 0
    for cut in cuts:
        found.append(data[at : at + cut])
        at += cut
    return [*found, data[at:]]


def test_answers_are_short() -> None:
    assert len(word(FrameKind.ANSWER, HopAnswer(let_in=False, code="PR01", why="w" * 1000))) < 4096
