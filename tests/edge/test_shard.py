"""An edge of two processes: each leads to the machines of both, and one of them lets in."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
from msgspec.structs import replace

from hawker.edge.shard import EdgeShard
from hawker.feed import (
    AskReport,
    EdgeReport,
    GatePlace,
    MachineRoute,
    process_of,
)
from hawker.host.own_user import make_folder
from hawker.ids import AppName, NodeId
from hawker.machine import State
from hawker.route_question import AskRoute, RouteExplained
from tests.edge.edge_kit import HOST, OK, PlayedHost, app_server, ask, get, played_host, route, says
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
M = TypeVar("M", EdgeReport, RouteExplained)
BLOG = AppName("blog")
"""The second process has its gates."""


def test_an_apps_machines_have_their_gates_in_one_process_and_those_of_another_host_where_they_were(
    tmp_path: Path,
) -> None:
    assert [process_of(AppName(app), 2) for app in ("shop", "blog")] == [0, 1]
    first, second = EdgeShard(0, 2, tmp_path), EdgeShard(1, 2, tmp_path)
    machine = replace(route(80, 8080), app=BLOG)
    assert second.seen(machine) is machine and EdgeShard().seen(machine) is machine
    gate = first.seen(machine).gate
    assert gate is not None and gate.is_beside and Path(gate.host) == second.socket == first.others[0]
    far = replace(machine, gate=GatePlace(node=NodeId("b" * 8), host="10.0.0.2", port=4291))
    assert first.seen(far) is far
    assert second.own_gate(far.gate) == GatePlace(node=NodeId("b" * 8), host="10.0.0.2", port=4292)
    assert EdgeShard().own_gate(far.gate) == far.gate and EdgeShard().own_gate(None) is None
    assert EdgeShard().socket is None and not EdgeShard().others


@pytest.fixture
async def pair() -> AsyncIterator[tuple[PlayedHost, PlayedHost]]:
    folder = Path(tempfile.mkdtemp(prefix="edge"))
    make_folder(folder, None)
    async with played_host(EdgeShard(0, 2, folder)) as first, played_host(EdgeShard(1, 2, folder)) as second:
        await eventually(lambda: first.edge.hops.neighbors_come and second.edge.hops.neighbors_come)
        yield first, second


async def publish_at(pair: tuple[PlayedHost, PlayedHost], machine: MachineRoute) -> int:
    """As their worker tells both of it; a port of the first one, which is not where it is let in."""
    port = free_port()
    for host in pair:
        at = replace(machine.services[0].ports[0], port=port if host is pair[0] else free_port())  # type: ignore[index]
        await host.publish(replace(machine, app=BLOG, services=(replace(machine.services[0], ports=(at,)),)))
    return port


async def test_a_request_is_let_in_and_counted_by_the_process_of_its_app(pair: tuple[PlayedHost, PlayedHost]) -> None:
    first, second = pair
    async with app_server(says(OK)) as inside:
        port = await publish_at(pair, route(1, inside, handlers=("http",)))
        for _ in range(3):
            assert b"200 OK" in await ask(port, get())
    assert second.counted("hops") == 3 and first.counted("connects") == 3 and not second.counted("connects")


async def test_a_machine_is_woken_by_the_process_of_its_app_alone(pair: tuple[PlayedHost, PlayedHost]) -> None:
    first, second = pair
    async with app_server(says(OK)) as inside:
        machine = route(1, inside, handlers=("http",))
        second.worker.on_wake = lambda asleep: replace(asleep, state=State.STARTED, instance=machine.instance)
        port = await publish_at(pair, replace(machine, state=State.STOPPED, instance=None))
        assert b"200 OK" in await ask(port, get())
    assert second.counted("wakes") == 1 and not first.counted("wakes")


async def test_a_client_of_the_other_process_has_his_turn_while_there_is_no_room(
    pair: tuple[PlayedHost, PlayedHost],
) -> None:
    """The place at the machine is wanted on and on by clients of the process that gives it."""
    _, second = pair

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.wait([asyncio.ensure_future(reader.read(1))], timeout=0.02)
        writer.write(OK)

    async with app_server(slowly) as inside, anyio.create_task_group() as tasks:
        port = await publish_at(pair, route(1, inside, handlers=("http",), hard=1))
        own = next(door.port for door in second.edge._routes.doors)

        async def keep_asking() -> None:
            while True:
                await ask(own, get(host="blog.localhost"))

        for _ in range(4):
            tasks.start_soon(keep_asking)
        await eventually(lambda: second.edge.held >= 3)
        for _ in range(3):
            assert b"200 OK" in await ask(port, get())
        tasks.cancel_scope.cancel()


async def test_a_report_counts_who_is_in_a_machine_once_and_one_process_explains(
    pair: tuple[PlayedHost, PlayedHost],
) -> None:
    first, second = pair
    async with app_server(says(OK)) as inside:
        machine = route(1, inside)
        port = await publish_at(pair, machine)
        _, writer = await asyncio.open_connection(HOST, port)
        await eventually(lambda: second.edge.gates.of[machine.id].total == 1)
        for host in pair:
            host.worker.say(AskReport(call=1))
            host.worker.say(AskRoute(call=2, app=BLOG, host="blog", port=port, tls=False))
        reports = [await heard(host, EdgeReport) for host in pair]
        explained = [await heard(host, RouteExplained) for host in pair]
        writer.close()
    assert [each.in_flight for each in reports] == [{}, {machine.id: 1}] and [each.process for each in reports] == [
        0,
        1,
    ]
    assert first.edge.gates.of[machine.id].is_beside and not explained[0].doors


async def heard(host: PlayedHost, kind: type[M]) -> M:
    await eventually(lambda: any(isinstance(each, kind) for each in host.worker.heard))
    return next(each for each in host.worker.heard if isinstance(each, kind))


async def test_processes_that_go_together_answer_what_is_under_way_for_each_other(
    pair: tuple[PlayedHost, PlayedHost],
) -> None:
    first, second = pair
    answer = asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await answer.wait()
        writer.write(OK)

    async with app_server(late) as inside, anyio.create_task_group() as tasks:
        port = await publish_at(pair, route(1, inside, handlers=("http",)))
        tasks.start_soon(drained, second)
        await eventually(lambda: second.edge.hops._closed)
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(get())
        await eventually(lambda: second.edge.gates.have_inside)
        tasks.start_soon(drained, first)
        answer.set()
        assert b"200 OK" in await reader.read()
        writer.close()


async def drained(host: PlayedHost) -> None:
    await host.edge.drain(20.0, stays=True)
