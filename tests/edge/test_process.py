"""The edge process as a whole: rests, closes and reports."""

import asyncio
from contextlib import suppress

import anyio
import msgspec
import pytest

from hawker.edge import http_connection, process, warden
from hawker.edge.process import is_own
from hawker.edge.warden import SOFT_BYTES, MemoryWatch
from hawker.feed import AskReport, CloseMachine, EdgeReport, GatePlace, MachineClosed, MachineRoute, WakeMachine
from hawker.ids import InstanceId
from hawker.machine import State
from tests.edge.edge_kit import (
    HOST,
    OK,
    PlayedHost,
    app_server,
    ask,
    get,
    publish_far,
    read_request,
    route,
    says,
)
from tests.edge.test_visits import woken
from tests.ports import free_port
from tests.waiting import eventually


def stopped(machine: MachineRoute) -> MachineRoute:
    return msgspec.structs.replace(machine, state=State.STOPPED, instance=None)


async def test_an_idle_machine_rests_and_the_next_request_wakes_it(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        machine = route(port, inside, handlers=("http",), autostop=True, idle_s=0.1)
        host.worker.on_rest = stopped
        host.worker.on_wake = lambda found: msgspec.structs.replace(
            found, state=State.STARTED, instance=InstanceId("again"), idle_s=1000.0
        )
        await host.publish(machine)
        await eventually(lambda: host.worker.machines[machine.id].state is State.STOPPED)
        assert b"200 OK" in await ask(port, get())
        assert host.counted("rests") == 1 and host.counted("wakes") == 1
        assert {each.events["rests"] for each in host.edge.figures.apps({})} == {1}


async def test_a_machine_that_rests_takes_the_place_of_one_that_somebody_stopped(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "SHORT_S", 0.0)
    port = free_port()
    machines = [route(port, 1, handlers=("http",), autostop=True, idle_s=0.1, least=1) for _ in range(2)]
    host.worker.on_rest = lambda machine: msgspec.structs.replace(
        machine, state=State.STOPPED, instance=None, rested=True
    )
    host.worker.on_wake = woken
    await host.publish(*machines)
    await eventually(lambda: host.counted("rests") == 1)
    rested, running = sorted(host.worker.machines.values(), key=lambda each: each.state is State.STARTED)
    assert host.worker.wakes == []
    host.worker.put(msgspec.structs.replace(running, state=State.STOPPED, instance=None))
    await eventually(lambda: host.worker.machines[rested.id].state is State.STARTED)
    (asked,) = [each for each in host.worker.heard if isinstance(each, WakeMachine)]
    assert asked.id == rested.id and asked.rested, "and not the one that was stopped"
    assert host.counted("restores") == 1 and host.counted("wakes") == 0


async def test_a_rest_that_is_refused_lets_requests_in_again(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",), autostop=True, idle_s=0.1))
        await eventually(lambda: host.counted("rests_refused") == 1)
        assert b"200 OK" in await ask(port, get())


async def test_a_closed_machine_lets_nobody_in_and_says_when_the_last_one_has_left(host: PlayedHost) -> None:
    go = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await go.wait()
        writer.write(OK)

    async with app_server(serve) as inside:
        port = free_port()
        machine = route(port, inside, handlers=("http",))
        await host.publish(machine)
        first = asyncio.gather(ask(port, get()))
        await eventually(lambda: host.edge.gates.of[machine.id].total == 1)
        host.worker.put(msgspec.structs.replace(machine, state=State.STOPPING, instance=None))
        host.worker.say(CloseMachine(call=7, id=machine.id, instance=machine.instance or InstanceId(""), wait_s=30))
        await eventually(lambda: not host.edge.gates.of[machine.id].is_open)
        assert not [each for each in host.worker.heard if isinstance(each, MachineClosed)]
        go.set()
        assert b"200 OK" in (await first)[0]
        await eventually(lambda: MachineClosed(call=7) in host.worker.heard)


async def test_a_report_says_where_it_listens_and_what_it_counted(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",)))
        await ask(port, get())
        host.worker.say(AskReport(call=3))
        await eventually(lambda: any(isinstance(each, EdgeReport) for each in host.worker.heard))
    report = next(each for each in host.worker.heard if isinstance(each, EdgeReport))
    assert (report.bound[0].address, report.bound[0].port, report.bound[0].app) == (HOST, port, "shop")
    assert report.counters["answers_2xx"] == 1


async def test_an_edge_at_rest_looks_at_who_comes_as_often_as_one_that_is_busy(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_LOOK_AT_REST_S", 1000.0)
    monkeypatch.setattr(http_connection, "HEAD_S", 0.2)
    looks = list[int]()
    monkeypatch.setattr(host.edge.handshakes, "check_time", lambda: looks.append(len(host.edge._clients)))
    port = free_port()
    await host.publish(route(port, 1, handlers=("http",)))
    for _ in range(2):  # it rests again in between
        looks.clear()
        reader, writer = await asyncio.open_connection(HOST, port)
        with anyio.fail_after(30):
            assert await reader.read() == b"", "nobody but the edge ends a head that does not come"
        writer.close()
        await eventually(lambda: looks[-1:] == [0])


def test_only_the_hosts_own_clients_are_not_bounded_by_address() -> None:
    assert is_own("127.0.0.1") and is_own("::1") and not is_own("192.0.2.1")


async def test_a_stop_does_not_wait_for_a_connection_that_has_no_end(host: PlayedHost) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"in")
        await reader.read()

    async with app_server(hold) as inside:
        port = free_port()
        machine = route(port, inside)
        await host.publish(machine)
        reader, writer = await asyncio.open_connection(HOST, port)
        assert await reader.readexactly(2) == b"in"
        host.worker.say(CloseMachine(call=9, id=machine.id, instance=machine.instance or InstanceId(""), wait_s=3600))
        await eventually(lambda: MachineClosed(call=9, left=1) in host.worker.heard)
        writer.close()


async def test_a_process_that_is_drained_answers_what_is_under_way_and_takes_nothing_new(host: PlayedHost) -> None:
    go = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await go.wait()
        writer.write(OK)

    async with app_server(serve) as inside:
        port = free_port()
        machine = route(port, inside, handlers=("http",))
        await host.publish(machine)
        reader, writer = await asyncio.open_connection(HOST, port)
        idle, _ = await asyncio.open_connection(HOST, port)
        writer.write(b"GET / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
        await eventually(lambda: host.edge.gates.of[machine.id].total == 1)
        drained = asyncio.create_task(host.edge.drain(30.0))
        assert await idle.read() == b"", "nobody asked there"
        _, asks = await asyncio.open_connection(HOST, port)
        asks.write(get())
        assert not drained.done()
        go.set()
        answer = await reader.read()
        assert b"200 OK" in answer and b"connection: close" in answer
        await drained
        assert host.counted("connects") == 2, "the third waits in the backlog, for the next process"
        for each in (writer, asks):
            each.close()


async def test_a_connection_without_an_end_holds_up_no_process_that_is_drained(
    host: PlayedHost, far: PlayedHost, gate: GatePlace
) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"in")
        await reader.read()

    async with app_server(hold) as inside:
        port = free_port()
        await publish_far(host, far, gate, route(port, inside))
        reader, writer = await asyncio.open_connection(HOST, port)
        assert await reader.readexactly(2) == b"in"
        with anyio.fail_after(60):
            await far.edge.drain(600.0)
            with pytest.raises(ConnectionResetError):
                await reader.read()
        writer.close()


def test_a_process_is_large_while_it_is_above_its_bound_with_nothing_to_give_back() -> None:
    used, now, kept = [SOFT_BYTES + 1], [0.0], [2]

    def give_back() -> None:
        used[0] -= kept[0]

    memory = MemoryWatch(lambda: now[0], lambda: used[0], give_back)
    assert not memory.large(), "what was freed is given back"
    used[0], kept[0] = SOFT_BYTES + 1, 0
    assert not memory.large(), "it is looked at once a second"
    now[0] = 1.0
    assert memory.large() and not memory.too_long()
    now[0] = 60.0
    assert not memory.too_long()
    now[0] = 61.0
    assert memory.too_long()
    used[0], now[0] = SOFT_BYTES, 62.0
    assert not memory.large() and not memory.too_long()


async def test_a_process_that_is_large_lets_newcomers_in_for_none_but_those_at_rest(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",)))
        resting, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
        assert await resting.readuntil(b"ok")
        monkeypatch.setattr(host.edge.memory, "_used", lambda: SOFT_BYTES + 1)
        await eventually(host.edge.memory.large)
        busy, second = await asyncio.open_connection(HOST, port)
        second.write(b"POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 2\r\n\r\n1")
        with suppress(ConnectionError):
            assert await resting.read() == b"", "it made room"
        assert b" 429 " in await ask(port, get())
        second.write(b"2")
        assert b"200 OK" in await busy.readuntil(b"ok")
        monkeypatch.setattr(host.edge.memory, "_used", lambda: SOFT_BYTES)
        await eventually(lambda: not host.edge.memory.large())
        assert b"200 OK" in await ask(port, get())
        for each in (writer, second):
            each.close()


async def test_a_process_that_stays_large_says_that_it_is_to_be_replaced(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warden, "_LARGE_S", 0.0)
    monkeypatch.setattr(process, "_FEW", 0)
    monkeypatch.setattr(host.edge.memory, "_used", lambda: SOFT_BYTES + 1)
    await eventually(host.edge.memory.too_long)
    assert not host.edge.too_large.is_set(), "it has clients who need it"
    monkeypatch.setattr(process, "_FEW", 1)
    await eventually(host.edge.too_large.is_set)


@pytest.mark.parametrize("agreed", [False, True])
async def test_a_machine_whose_rest_nobody_answered_lets_nobody_in_until_the_worker_says_how_it_is(
    host: PlayedHost, agreed: bool
) -> None:
    """The worker dies after it was asked: it may have agreed, and the next one carries that out."""
    async with app_server(says(OK)) as inside:
        port = free_port()

        def dies(machine: MachineRoute) -> MachineRoute:
            host.worker.away = True
            host.worker.hang_up()
            return machine

        host.worker.on_rest = dies
        machine = route(port, inside, handlers=("http",), autostop=True, idle_s=0.1)
        await host.publish(machine)
        gate = host.edge.gates.of[machine.id]
        await eventually(lambda: gate.doubted == machine.instance)
        asked = asyncio.ensure_future(ask(port, get()))
        await eventually(lambda: host.edge.held == 1)
        assert not gate.is_open
        if agreed:
            host.worker.machines[machine.id] = stopped(machine)
            host.worker.on_wake = woken
        host.worker.away = False
        assert b"200 OK" in await asked
        assert host.counted("wakes") == agreed
