"""Two hosts that are played: what comes to the edge of one goes into machines of the other, through its gate."""

import asyncio
import ctypes
import os
import socket
import struct
from unittest.mock import Mock

import anyio
import msgspec
import pytest

from hawker.auth.node_certificate import identity_of
from hawker.clock import SystemClock
from hawker.edge import hops
from hawker.edge.hop_door import _Host
from hawker.edge.hop_frames import HopAnswer, HopQuestion
from hawker.edge.hops import HopDialer, identity_in
from hawker.edge.splice import UNSENT_MAX
from hawker.feed import NODE_IDENTITY, GatePlace
from hawker.ids import AppName, InstanceId, MachineId, NodeId
from hawker.machine import State
from tests.edge.edge_kit import (
    HOST,
    KEY,
    OK,
    PlayedHost,
    Serve,
    app_server,
    ask,
    get,
    played_host,
    publish_abroad,
    publish_far,
    read_request,
    route,
    says,
    seen_from_abroad,
    seen_from_afar,
)
from tests.ports import free_port
from tests.waiting import eventually

replace = msgspec.structs.replace
OTHER_KEY = b"o" * 32


async def test_a_request_goes_to_a_machine_of_another_host(host: PlayedHost, far: PlayedHost, gate: GatePlace) -> None:
    seen: list[bytes] = []
    async with app_server(says(OK, seen)) as inside:
        port = free_port()
        machine = route(port, inside, handlers=("http",), kind="requests")
        await publish_far(host, far, gate, machine)
        body = os.urandom(300_000)
        head = get("/x", f"Content-Length: {len(body)}", method="POST")
        for request in (get(), head + body, get()):
            assert b"200 OK" in await ask(port, request)
        assert seen[1].endswith(body) and b"fly-client-ip: 127.0.0.1" in seen[1].lower()
        await eventually(lambda: far.edge.gates.of[machine.id].total == 0)
        told = {each.app: each.verdicts for each in host.edge.figures.apps({})}
        assert told == {machine.app: {"go": 3}}
        assert far.counted("hops") == 3 and host.edge.gates.of[machine.id].total == 0


async def test_requests_of_one_connection_go_on(host: PlayedHost, far: PlayedHost, gate: GatePlace) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await publish_far(host, far, gate, route(port, inside, handlers=("http",), kind="requests"))
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
        await publish_far(host, far, gate, route(port, inside))
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
        await publish_far(host, far, gate, machine)
        answers = await asyncio.gather(*(ask(port, get()) for _ in range(5)))
        assert all(b"200 OK" in each for each in answers)
        assert far.worker.wakes == [machine.id] and host.worker.wakes == []


async def test_a_word_that_is_out_of_date_costs_a_moment_and_no_request(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        gone, there = (route(port, inside, handlers=("http",)) for _ in range(2))
        await publish_far(host, far, gate, there)
        await host.publish(seen_from_afar(gone, gate))
        for _ in range(64):  # each is sent to one of the two by lot
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
        await publish_far(host, far, gate, route(port, away, app="older"))
        assert b"there" in await ask(port, get())
        own = route(port, inside, app="newer")
        await host.publish(own)
        assert b"here" in await ask(port, get())
        await publish_far(host, far, gate, route(port, away, app="newer"))
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
        await publish_far(host, far, replace(gate, node=NodeId("c" * 8)), machine)
        assert b"503" in await ask(port, get())
        assert far.counted("hops") == 0


async def test_new_keys_are_taken_up_without_a_restart(host: PlayedHost, far: PlayedHost, gate: GatePlace) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await publish_far(host, far, gate, route(port, inside, handlers=("http",)))
        for played, node in ((host, "a" * 8), (far, "b" * 8)):
            (played.folder / NODE_IDENTITY).write_text(identity_of(NodeId(node), [OTHER_KEY, KEY]))
        assert b"200 OK" in await ask(port, get())


async def test_a_connection_is_used_again_and_not_when_it_is_gone(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await publish_far(host, far, gate, route(port, inside, handlers=("http",)))
        for _ in range(3):
            assert b"200 OK" in await ask(port, get())
        assert len(far.edge.hops.table) == 1
        for line in list(far.edge.hops.table._keys):
            line.give_up()
        for _ in range(3):
            assert b"200 OK" in await ask(port, get())


async def test_a_hop_that_is_asked_for_again_is_held_for_what_is_left_of_its_time(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    clock = SystemClock()
    dialer, until = HopDialer(identity_in(host.folder), clock, lambda place, until: None), clock.monotonic() + 20
    held = HopQuestion(app=AppName("shop"), machine=MachineId("m1"), service=0, hold_s=60.0)
    assert 0 < dialer._again(held, until).hold_s <= 20
    now_or_never = replace(held, hold_s=0.0)
    assert dialer._again(now_or_never, until - 60) is now_or_never
    with pytest.raises(TimeoutError):
        dialer._again(held, until - 60)


async def test_a_host_that_is_lost_costs_what_may_be_repeated_a_second_and_a_half(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hawker.edge.hops.GONE_S", 600.0)
    asked: list[bytes] = []

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await read_request(reader))
        await reader.read()

    async with app_server(never) as silent, app_server(says(OK)) as inside:
        port = free_port()
        lost = route(port, silent, handlers=("http",))
        await publish_far(host, far, gate, lost)
        now = asyncio.get_running_loop().time
        repeated, once = (asyncio.create_task(ask(port, get(method=method))) for method in ("GET", "POST"))
        await eventually(lambda: len(asked) == 2)
        await host.publish(route(port, inside, handlers=("http",)))
        for line in list(far.edge.hops.table._keys):
            assert isinstance(line, _Host) and line.line.transport is not None
            deafen(line.line.transport.get_extra_info("socket"))
        assert b"200 OK" in await asyncio.wait_for(repeated, 60), "before the host counts as gone"
        await eventually(lambda: host.edge.gates.of[lost.id].avoided(now()))  # nobody else goes there
        assert not once.done(), "it may have been done"
        monkeypatch.setattr("hawker.edge.hops.GONE_S", 2.2)
        answer = await once
        assert b"502" in answer and b"PU02" in answer and len(asked) == 2
        why = "host bbbbbbbb has not been heard for "
        await eventually(lambda: any(why in line.text for line in host.worker.lines))
        for line in list(far.edge.hops.table._keys):
            line.give_up()


async def test_a_host_that_was_lost_is_tried_by_one_request_while_another_machine_has_room(
    host: PlayedHost, gate: GatePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hawker.edge.hops.ANSWER_S", 2.0)
    tried, near, go = list[bool](), list[bool](), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tried.append(True)  # its host takes the connection, and says nothing
        await reader.read()

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        near.append(True)
        await go.wait()
        writer.write(OK)

    async with app_server(silent) as nobody, app_server(answers) as inside:
        port, place = free_port(), replace(gate, port=nobody)
        here = route(port, inside, handlers=("http",))
        await host.publish(here)
        lost = seen_from_afar(route(port, 1, handlers=("http",)), place)
        await host.publish(lost)
        await eventually(lambda: lost.id in host.edge.gates.of)
        host.edge.gates.of[here.id].answered(0)
        host.edge.gates.avoid_host(place, asyncio.get_running_loop().time())
        asked = [asyncio.create_task(ask(port, get())) for _ in range(12)]
        await eventually(lambda: len(tried) + len(near) >= 12)
        assert len(tried) == 1, "the others go where somebody answers"
        go.set()
        assert all(b"200 OK" in answer for answer in await asyncio.gather(*asked))


async def test_a_gate_that_is_busy_is_not_lost(host: PlayedHost, far: PlayedHost, gate: GatePlace) -> None:
    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await SystemClock().sleep(1.8)  # an app that works, longer than a host may be silent
        writer.write(OK)

    async with app_server(late) as inside:
        port = free_port()
        await publish_far(host, far, gate, *(route(port, inside, handlers=("http",)) for _ in range(2)))
        assert b"200 OK" in await ask(port, get())
        assert host.counted("retries") == 0


def deafen(connection: socket.socket) -> None:
    """What comes to it is dropped before TCP sees it, as if its host had no power: one instruction, "keep 0 bytes"."""
    program = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0))
    connection.setsockopt(socket.SOL_SOCKET, 26, struct.pack("@HP", 1, ctypes.addressof(program)))  # SO_ATTACH_FILTER


async def test_an_answer_that_is_broken_off_is_broken_off_for_the_client(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")

    async with app_server(breaks) as inside:
        port = free_port()
        await publish_far(host, far, gate, route(port, inside, handlers=("http",)))
        with pytest.raises(ConnectionResetError):
            await ask(port, get())
        await eventually(lambda: not far.edge.gates.of or all(not g.total for g in far.edge.gates.of.values()))


async def test_a_request_whose_hop_is_lost_just_after_its_gate_has_answered_is_answered(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer and the end of the connection come in one turn of the event loop."""
    ask_gate = hops._Caller.ask

    async def lost_after(caller: hops._Caller, question: HopQuestion, within_s: float) -> HopAnswer:
        answer = await ask_gate(caller, question, within_s)
        caller.line.give_up()
        await eventually(lambda: caller.line.transport is None)
        return answer

    monkeypatch.setattr(hops._Caller, "ask", lost_after)
    async with app_server(says(OK)) as inside:
        port = free_port()
        await publish_far(host, far, gate, route(port, inside, handlers=("http",)))
        with anyio.fail_after(30):
            assert b"PU02" in await ask(port, get(method="POST"))
        await eventually(lambda: all(not each.total for each in host.edge.gates.of.values()))


async def test_a_region_without_machines_of_the_app_has_one_of_another_region_answer(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    seen: list[bytes] = []
    async with app_server(says(OK, seen)) as inside:
        port = free_port()
        machine = route(port, inside, handlers=("http",))
        await publish_abroad(host, far, gate, machine)
        assert b"200 OK" in await ask(port, get("/", "Content-Length: 4", method="POST") + b"body")
        assert seen[0].endswith(b"body") and b"fly-region: ams" in seen[0].lower()
        await eventually(lambda: far.edge.gates.of[machine.id].total == 0)
        assert far.counted("hops") == 1 and host.edge.gates.of[MachineId(f"shop@{gate.node}")].total == 0
        (told,) = (each for each in host.edge.figures.machines() if each.statuses)
        assert told.machine == machine.id, "who answered is told"


async def test_a_region_is_left_when_nobody_in_it_has_room_and_not_at_soft_limits(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    asked, go = list[str](), asyncio.Event()

    def waits(name: str) -> Serve:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            asked.append(name)
            await go.wait()
            writer.write(OK)

        return serve

    async with app_server(waits("here")) as near, app_server(waits("abroad")) as inside:
        port = free_port()
        await host.publish(route(port, near, handlers=("http",), soft=1, hard=3))
        await publish_abroad(host, far, gate, route(port, inside, handlers=("http",)))
        requests = []
        for number in range(5):
            requests.append(asyncio.create_task(ask(port, get())))
            await eventually(lambda: len(asked) == number + 1)  # noqa: B023
        assert asked == ["here"] * 3 + ["abroad"] * 2
        go.set()
        assert all(b"200 OK" in answer for answer in await asyncio.gather(*requests))


async def test_a_region_whose_machines_may_be_started_is_not_left(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async with app_server(says(OK)) as near, app_server(says(OK)) as inside:
        port = free_port()
        asleep = route(port, near, handlers=("http",), state=State.STOPPED)
        host.worker.on_wake = lambda found: replace(found, state=State.STARTED, instance=InstanceId("new"))
        await host.publish(asleep)
        await publish_abroad(host, far, gate, route(port, inside, handlers=("http",)))
        assert b"200 OK" in await ask(port, get())
        assert host.worker.wakes == [asleep.id] and far.counted("hops") == 0


async def test_a_region_whose_machine_could_not_be_started_is_left(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, 1, handlers=("http",), state=State.STOPPED))
        await publish_abroad(host, far, gate, route(port, inside, handlers=("http",)))
        assert b"200 OK" in await ask(port, get())
        assert len(host.worker.wakes) == 1 and far.counted("hops") == 1


async def test_a_region_starts_its_machine_for_a_request_of_another(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        machine = route(port, inside, handlers=("http",), state=State.SUSPENDED)
        far.worker.on_wake = lambda found: replace(found, state=State.STARTED, instance=InstanceId("new"))
        await publish_abroad(host, far, gate, machine)
        answers = await asyncio.gather(*(ask(port, get()) for _ in range(5)))
        assert all(b"200 OK" in each for each in answers) and far.worker.wakes == [machine.id]


async def test_a_region_in_which_nobody_can_answer_is_asked_once_and_the_next_one_then(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async with app_server(says(OK)) as inside, played_host() as third:
        port = free_port()
        cordoned = replace(route(port, inside, handlers=("http",)), cordoned=True)
        await publish_abroad(host, far, gate, cordoned, region="iad", away_ms=8)
        answer = await ask(port, get())
        assert b"503" in answer and b"PR01" in answer and far.counted("hops_refused_PR01") == 1
        place, machine = await third.join("c" * 8, KEY), route(port, inside, handlers=("http",))
        await publish_abroad(host, third, place, machine, region="nrt", away_ms=64)
        assert b"200 OK" in await ask(port, get())


async def test_a_region_never_passes_a_request_on_to_another_one(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    port, back = free_port(), host.gate_place
    machine = route(port, 1, handlers=("http",))
    await host.publish(seen_from_abroad(machine, gate))
    far.worker.put(seen_from_abroad(machine, back, region="ams"))
    await eventually(lambda: far.edge.gates.of)
    assert b"PR01" in await ask(port, get())
    assert far.counted("hops_refused_PR01") == 1 and host.counted("hops_refused_PR01") == 0


async def test_a_region_is_forced_or_preferred_by_the_client(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    near, abroad = (OK.replace(b"ok", name) for name in (b"h1", b"f1"))
    async with app_server(says(near)) as here, app_server(says(abroad)) as inside:
        port = free_port()
        machine = route(port, inside, handlers=("http",))
        await host.publish(route(port, here, handlers=("http",)))
        await publish_abroad(host, far, gate, machine)
        for field, answer in (
            ("x-none: 1", b"h1"),
            ("fly-force-region: iad", b"f1"),
            ("fly-force-region: ams,iad", b"h1"),
            ("fly-force-region: us", b"f1"),
            ("fly-force-region: nrt", b"PR02"),
            ("fly-force-region: apac", b"PR02"),
            ("fly-prefer-region: na", b"f1"),
            ("fly-prefer-region: apac", b"h1"),
            ("fly-prefer-region: nrt,iad", b"f1"),
            ("fly-prefer-region: nrt", b"h1"),
            (f"fly-force-instance-id: {machine.id}", b"f1"),
            ("fly-force-instance-id: nobody", b"PR02"),
            (f"fly-force-instance-id: shop@{gate.node}", b"PR02"),
            (f"fly-prefer-instance-id: shop@{gate.node}", b"h1"),
        ):
            assert answer in await ask(port, get("/", field)), field


@pytest.mark.parametrize("region", [b"iad", b"us", b'"apac,na"'])
async def test_a_region_is_where_a_machine_has_its_request_replayed(
    host: PlayedHost, far: PlayedHost, gate: GatePlace, region: bytes
) -> None:
    seen: list[bytes] = []
    order = b"HTTP/1.1 200 OK\r\nfly-replay: region=%b\r\nContent-Length: 0\r\n\r\n" % region
    async with app_server(says(order)) as here, app_server(says(OK, seen)) as inside:
        port = free_port()
        origin = route(port, here, handlers=("http",))
        await host.publish(origin)
        await publish_abroad(host, far, gate, route(port, inside, handlers=("http",)))
        assert b"200 OK" in await ask(port, get("/", "Content-Length: 4", method="POST") + b"body")
        assert seen[0].endswith(b"body") and f"instance={origin.id};region=ams".encode() in seen[0]


@pytest.mark.parametrize("said", ["", "a\r\nx: y", "x" * 33, "\u0663"])
def test_machine_that_another_region_names_is_an_id_or_nobody(said: str) -> None:
    assert hops.chosen_in(HopAnswer(let_in=True, machine=MachineId(said))) is None
    assert hops.chosen_in(HopAnswer(let_in=True, machine=MachineId("f1"))) == "f1"


@pytest.mark.parametrize(("unsent", "again"), [(100, True), (UNSENT_MAX, False)])
def test_a_connection_whose_gate_has_yet_to_read_is_not_used_again(unsent: int, again: bool) -> None:
    place, caller = GatePlace(node=NodeId("b"), host=HOST, port=1), Mock(lasting=False)
    caller.line.transport.get_write_buffer_size.return_value = unsent
    dialer = HopDialer(Mock(), SystemClock(), Mock())
    dialer._keep(place, caller)
    assert (dialer._take(place) is caller) is again
    assert caller.line.close.called is not again and not caller.give_up.called, "what is on its way arrives"
