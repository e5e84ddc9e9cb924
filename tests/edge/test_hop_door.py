"""The gate's end of a hop: who comes in, how many, and what strangers get."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from unittest.mock import Mock

import anyio
import anyio.lowlevel
import msgspec
import pytest

from hawker.auth.node_certificate import identity_of
from hawker.config.machine import Port
from hawker.edge import hop_door
from hawker.edge.hop_door import HopDoor, _Guest, _Host
from hawker.edge.hop_frames import HopAnswer, HopFrame, HopQuestion, frame, word
from hawker.edge.hops import identity_in
from hawker.edge.splice import Side
from hawker.edge.visits import Visit
from hawker.feed import NODE_IDENTITY, GatePlace, MachineRoute
from hawker.ids import AppName, InstanceId, MachineId, NodeId
from hawker.machine import State
from hawker.token_bucket import Allowance, TokenBuckets
from tests.edge.edge_kit import HOST, OK, PlayedHost, app_server, ask, get, publish_far, route, says
from tests.edge.test_splice import side
from tests.ports import free_port
from tests.waiting import eventually

replace = msgspec.structs.replace
OTHER_KEY = b"o" * 32


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
            writer.write(word(HopFrame.QUESTION, question))
            await reader.readexactly(1)
    assert far.edge.held == 0 and far.counted("hops_refused_PR01") == 0


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"app": "bank"}, "PR01"),
        ({"port": 9}, "PR01"),
        ({"spoken": "http tls"}, "PR01"),
        ({"force": "1" * 14}, "PR02"),
        ({"apart": True}, "PR01"),
        ({"hidden": True}, "PR01"),
        ({"machine": "1" * 14, "hold_s": float("inf")}, ""),
        ({"hidden": True, "inside": True}, ""),
    ],
)
async def test_a_question_of_another_region_is_believed_as_far_as_the_routes_here_say_so(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, wanted: dict[str, object], code: str
) -> None:
    async with app_server(says(OK)) as inside:
        machine = route(80, inside, handlers=("http",))
        far.worker.put(replace(machine, publish="" if wanted.get("hidden") else "*"))
        await eventually(lambda: far.edge.gates.of)
        said = {key: value for key, value in wanted.items() if key not in ("apart", "hidden")}
        usual = {"app": "shop", "machine": "", "service": 0, "port": 80, "spoken": "http"}
        apart = [machine.id] if wanted.get("apart") else []
        question = msgspec.convert({**usual, "apart": apart, **said}, HopQuestion)
        context = identity_in(host.folder).client()
        context.check_hostname = False
        async with connected(gate, context) as (reader, writer):
            writer.write(word(HopFrame.QUESTION, question))
            head = await reader.readexactly(5)
            answer = msgspec.msgpack.decode(await reader.readexactly(int.from_bytes(head[1:])), type=HopAnswer)
        assert answer.let_in is (not code) and answer.code == code
        assert answer.machine == (None if code else machine.id)


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff\xff\xff",
        b"\x01\x00\x00\x00\x04nope",
        b"\x01\x00\x00\x10\x01",
        b"\x03\x00\x00\x00\x04data",
        b"\x05\0\0\0\0",
        b"\x06\0\0\0\x08" + bytes(8),
    ],
    ids=repr,
)
async def test_bytes_that_are_no_question_end_the_connection(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, said: bytes
) -> None:
    context = identity_in(host.folder).client()
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


async def test_newcomers_of_one_address_are_bounded_and_kept_connections_go_on(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await publish_far(host, far, gate, route(port, inside, handlers=("http",)))
        assert b"200 OK" in await ask(port, get())
        monkeypatch.setattr(far.edge.hops, "_newcomers", TokenBuckets(Allowance(0.001, 1.0)))
        streams = [await asyncio.open_connection(HOST, gate.port) for _ in range(5)]
        await eventually(lambda: sum(reader.at_eof() for reader, _ in streams) == 4)
        for _, writer in streams:
            writer.close()
        assert far.counted("hops_too_many") == 4
        assert b"200 OK" in await ask(port, get()), "over the connection that is there"
        assert far.edge.hops.may_begin("127.0.0.2"), "a neighbour is not kept out"


async def test_the_gate_keeps_the_hard_limit_of_all_edges_together(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    most, inside_now, served = 0, 0, 0

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most, inside_now, served
        await reader.readuntil(b"\r\n\r\n")
        inside_now += 1
        most = max(most, inside_now)
        await eventually(lambda: inside_now >= 2 or served >= 18)
        inside_now, served = inside_now - 1, served + 1
        writer.write(OK)

    async with app_server(slow) as inside:
        port, own = free_port(), free_port()
        machine = route(port, inside, handlers=("http",), hard=2)
        await publish_far(host, far, gate, machine)
        near = replace(machine, services=(replace(machine.services[0], ports=(port_like(machine, own),)),))
        await far.publish(near)
        answers = await asyncio.gather(*(ask(each, get()) for each in (port, own) * 10))
        assert all(b"200 OK" in each for each in answers) and most <= 2


async def test_a_client_that_leaves_gives_its_place_at_the_other_host_back(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    port = free_port()
    machine = route(port, 1, handlers=("http",), state=State.STOPPED)
    far.worker.on_wake = lambda asleep: replace(asleep, state=State.STARTING)
    await publish_far(host, far, gate, machine)
    _, writer = await asyncio.open_connection(HOST, port)
    writer.write(get())
    await eventually(lambda: far.edge.held == 1)
    writer.close()
    await eventually(lambda: far.edge.held == 0)
    await eventually(lambda: host.edge.gates.of[machine.id].total == 0)


REQUEST = b"GET / HTTP/1.1\r\nhost: shop\r\n\r\n"
Said = tuple[HopFrame, bytes]


async def test_a_host_that_is_lost_just_before_it_is_let_in_gives_its_place_back(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection ends in the turn of the event loop in which the machine takes the other one."""
    joined, join = list[AppName](), HopDoor._join

    def join_late(door: HopDoor, peer: _Host, question: HopQuestion, visit: Visit, side: Side) -> None:
        assert peer.line.transport is not None
        peer.line.transport.set_protocol(asyncio.Protocol())
        peer.line.transport.abort()
        peer.line.connection_lost(None)
        join(door, peer, question, visit, side)
        joined.append(question.app)

    async def stays(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    monkeypatch.setattr(HopDoor, "_join", join_late)
    async with app_server(stays) as inside, line_to(host, gate) as (_, writer):
        question = replace(await there(far, inside), first=b"")
        writer.write(word(HopFrame.QUESTION, question))
        await eventually(lambda: bool(joined))
        await eventually(lambda: far.edge.gates.of[question.machine].total == 0)


async def test_a_machine_s_connection_rests_for_the_next_request_of_the_same_host(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    connections = 0

    async def counts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await says(OK)(reader, writer)

    async with app_server(counts) as inside, line_to(host, gate) as (reader, writer):
        question = await there(far, inside)
        for heard, expected in ((len(OK), 1), (len(OK), 1), (len(OK) - 1, 1), (len(OK), 2)):
            writer.write(word(HopFrame.QUESTION, question))
            kind, said = await hear(reader)
            answer = msgspec.msgpack.decode(said, type=HopAnswer)
            assert kind is HopFrame.ANSWER and answer.let_in and answer.keeps
            assert await hear(reader) == (HopFrame.DATA, OK)
            assert far.edge.gates.of[question.machine].total == 1
            writer.write(frame(HopFrame.REST, heard.to_bytes(8)))
            await eventually(lambda: far.edge.gates.of[question.machine].total == 0)
            assert connections == expected
        async with line_to(host, gate) as (other, asks):
            asks.write(word(HopFrame.QUESTION, question))
            assert msgspec.msgpack.decode((await hear(other))[1], type=HopAnswer).rested
        far.worker.put(replace(far.edge.gates.of[question.machine].route, instance=InstanceId("next")))
        await eventually(lambda: far.edge.gates.of[question.machine].route.instance == "next")
        writer.write(word(HopFrame.QUESTION, question))
        assert not msgspec.msgpack.decode((await hear(reader))[1], type=HopAnswer).rested, "of another instance"


@pytest.mark.parametrize(
    ("unsent", "lost"), [([0, 0], False), ([2, 2], True), ([3, 2, 1, 0, 0], False), ([3, 2, 2, 2], True)]
)
async def test_a_machine_that_does_not_read_the_end_of_a_request_loses_its_connection(
    unsent: list[int], lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its visit lasts as long as the connection, and that as long as it reads."""
    monkeypatch.setattr(hop_door, "_LET_READ_S", 0.0)
    guest, (machine, theirs) = _Guest(print), side()
    guest.transport = Mock()
    guest.join(machine)
    theirs.get_write_buffer_size.side_effect = lambda: unsent.pop(0) if unsent[1:] else unsent[0]
    guest.connection_lost(None)
    theirs.close.assert_called_once()
    for _ in range(20):
        await anyio.lowlevel.checkpoint()
    assert theirs.abort.called is lost


async def test_the_answer_to_first_bytes_comes_while_the_machine_says_nothing(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async with app_server(says(b"")) as inside, line_to(host, gate) as (reader, writer):
        writer.write(word(HopFrame.QUESTION, await there(far, inside)))
        with anyio.fail_after(30):
            assert msgspec.msgpack.decode((await hear(reader))[1], type=HopAnswer).let_in


async def test_first_bytes_of_who_is_not_let_in_reach_no_machine(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    seen = list[bytes]()
    async with app_server(says(OK, seen)) as inside, line_to(host, gate) as (reader, writer):
        question = await there(far, inside)
        for asked, let_in in ((replace(question, app=AppName("bank")), False), (question, True)):
            writer.write(word(HopFrame.QUESTION, asked))
            assert msgspec.msgpack.decode((await hear(reader))[1], type=HopAnswer).let_in is let_in
        assert await hear(reader) == (HopFrame.DATA, OK)
        assert seen == [REQUEST]


async def test_an_older_edge_is_answered_in_its_own_words(host: PlayedHost, far: PlayedHost, gate: GatePlace) -> None:
    """It knows neither `first` nor `REST`: it sends what it has to say after the answer, and both sides close."""
    async with app_server(says(OK)) as inside, line_to(host, gate) as (reader, writer):
        question = replace(await there(far, inside), first=b"")
        for _ in range(2):
            writer.write(word(HopFrame.QUESTION, question))
            kind, said = await hear(reader)
            assert kind is HopFrame.ANSWER and msgspec.msgpack.decode(said)["let_in"] is True
            writer.write(frame(HopFrame.DATA, REQUEST))
            assert await hear(reader) == (HopFrame.DATA, OK)
            writer.write(frame(HopFrame.CLOSE))
            assert await hear(reader) == (HopFrame.CLOSE, b"")
            await eventually(lambda: far.edge.gates.of[question.machine].total == 0)


async def there(far: PlayedHost, inside: int) -> HopQuestion:
    """A request for a machine that the host has."""
    machine = route(80, inside, handlers=("http",))
    far.worker.put(machine)
    await eventually(lambda: machine.id in far.edge.gates.of)
    return HopQuestion(app=machine.app, machine=machine.id, service=0, first=REQUEST)


async def hear(reader: asyncio.StreamReader) -> Said:
    head = await reader.readexactly(5)
    return HopFrame(head[0]), await reader.readexactly(int.from_bytes(head[1:]))


@asynccontextmanager
async def line_to(
    host: PlayedHost, gate: GatePlace
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    context = identity_in(host.folder).client()
    context.check_hostname = False
    async with connected(gate, context) as ends:
        yield ends


@asynccontextmanager
async def connected(
    gate: GatePlace, context: ssl.SSLContext
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(gate.host, gate.port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def port_like(machine: MachineRoute, number: int) -> Port:
    (port,) = machine.services[0].ports or ()
    return replace(port, port=number)
