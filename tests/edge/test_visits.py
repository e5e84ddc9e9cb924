"""Holding requests while machines start: places, bounds, deadlines."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

import anyio
import anyio.lowlevel
import msgspec
import pytest

from hawker.edge import visits
from hawker.edge.splice import reset
from hawker.edge.steering import Aim
from hawker.edge.visits import Visit
from hawker.fair.occupancy import Occupancy
from hawker.fair.table import EDGE_WAKES
from hawker.fair.turns import Share
from hawker.feed import MachineRoute
from hawker.ids import AppName, InstanceId
from hawker.machine import State
from tests.edge.edge_kit import HOST, OK, PlayedHost, app_server, ask, get, route, says
from tests.ports import free_port
from tests.waiting import eventually


def woken(machine: MachineRoute) -> MachineRoute:
    return msgspec.structs.replace(machine, state=State.STARTED, instance=InstanceId(f"w{machine.id}"))


async def test_a_request_wakes_a_machine_and_is_answered_by_it(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port, host.worker.on_wake = free_port(), woken
        await host.publish(route(port, inside, handlers=("http",), state=State.STOPPED))
        assert b"200 OK" in await ask(port, get())
        assert len(host.worker.wakes) == 1


async def test_a_burst_wakes_one_machine_for_each_soft_limit_and_none_fails(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        sleeping = [route(port, inside, handlers=("http",), state=State.STOPPED, soft=10) for _ in range(8)]
        await host.publish(*sleeping)
        answers = asyncio.gather(*(ask(port, get()) for _ in range(40)))
        await eventually(lambda: host.edge.held == 40)
        host.worker.on_wake = woken
        assert all(b"200 OK" in answer for answer in await answers)
        started = set(host.worker.wakes)
        assert len(started) <= 8


async def test_a_refusal_is_said_at_the_end_of_the_time(host: PlayedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(machine: MachineRoute) -> str:
        """What is left of the time is short, from now on."""
        monkeypatch.setattr(visits, "WAKE_TIMEOUT_S", 0.3)
        monkeypatch.setattr(visits, "ROUTE_TIMEOUT_S", 0.3)
        return "no room on this host"

    port, host.worker.on_wake = free_port(), refuses
    await host.publish(route(port, 1, handlers=("http",), state=State.STOPPED))
    answer = await ask(port, get())
    assert answer.startswith(b"HTTP/1.1 503 ") and b"PM01" in answer and b"retry-after: 1" in answer
    await eventually(lambda: host.worker.lines)
    assert "no room on this host" in host.worker.lines[0].text


async def test_an_app_whose_machines_nobody_may_start_is_refused_at_once(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visits, "ROUTE_TIMEOUT_S", 600.0)
    port = free_port()
    await host.publish(route(port, 1, handlers=("http",), state=State.STOPPED, autostart=False))
    assert b"PR01" in await asyncio.wait_for(ask(port, get()), 60)


async def test_over_the_hard_limit_requests_wait_for_their_turn(host: PlayedHost) -> None:
    inside_now, most = 0, 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal inside_now, most
        await reader.readuntil(b"\r\n\r\n")
        inside_now += 1
        most = max(most, inside_now)
        await asyncio.wait([asyncio.ensure_future(reader.read(1))], timeout=0.02)
        inside_now -= 1
        writer.write(OK)

    async with app_server(serve) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",), hard=2))
        answers = await asyncio.gather(*(ask(port, get()) for _ in range(12)))
    assert all(b"200 OK" in answer for answer in answers) and most == 2


async def test_an_app_has_so_many_places_in_all_its_queues_and_others_have_theirs(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = Share(name="held", total=10, each=6, reserve=4, key="app", over="refused")
    monkeypatch.setattr(host.edge._visits, "_held", Occupancy(share))
    async with app_server(says(OK)) as inside:
        apps = ["mallory", "mallory", "mallory", "shop"]
        *doors, mine = [route(free_port(), inside, app=app, handlers=("http",), state=State.STOPPED) for app in apps]
        await host.publish(*doors, mine)
        host.worker.on_wake = lambda machine: machine  # it is on its way
        flood = [asyncio.ensure_future(ask(port_of(each), get())) for each in doors for _ in range(4)]
        await eventually(lambda: host.edge.held == 6)
        own = [asyncio.ensure_future(ask(port_of(mine), get())) for _ in range(3)]
        await eventually(lambda: host.edge.held == 9)
        await host.publish(*map(woken, [*doors, mine]))
        answers = await asyncio.gather(*flood)
        assert sum(b"HQ01" in answer for answer in answers) == sum(b"200 OK" in answer for answer in answers) == 6
        assert all(b"200 OK" in answer for answer in await asyncio.gather(*own))
    assert host.edge.held == 0


async def test_an_organization_with_many_apps_has_one_share(host: PlayedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    share = Share(name="held", total=10, each=6, reserve=4, key="organization", over="refused")
    monkeypatch.setattr(host.edge._visits, "_held_of_org", Occupancy(share))
    async with app_server(says(OK)) as inside:

        def of(org: str, app: str) -> MachineRoute:
            stopped = route(free_port(), inside, app=app, handlers=("http",), state=State.STOPPED)
            return msgspec.structs.replace(stopped, org=org)

        mallory, mine = [of("mallory", f"m{number}") for number in range(3)], of("mine", "shop")
        await host.publish(*mallory, mine)
        host.worker.on_wake = lambda machine: machine  # it is on its way
        flood = [asyncio.ensure_future(ask(port_of(each), get())) for each in mallory for _ in range(4)]
        await eventually(lambda: host.edge.held == 6)
        own = [asyncio.ensure_future(ask(port_of(mine), get())) for _ in range(3)]
        await eventually(lambda: host.edge.held == 9)
        await host.publish(*map(woken, [*mallory, mine]))
        answers = await asyncio.gather(*flood)
        assert sum(b"HQ01" in answer for answer in answers) == sum(b"200 OK" in answer for answer in answers) == 6
        assert all(b"200 OK" in answer for answer in await asyncio.gather(*own))
    assert host.edge._visits._held_of_org.total == 0


def port_of(machine: MachineRoute) -> int:
    return (machine.services[0].ports or ())[0].port or 0


async def test_an_app_with_most_visits_leaves_room_for_others(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = Share(name="visits", total=6, each=5, reserve=1, key="app", over="refused")
    monkeypatch.setattr(host.edge._visits, "_inside", Occupancy(share))

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with app_server(silent) as slow, app_server(says(OK)) as inside:
        flooded, mine = free_port(), free_port()
        await host.publish(
            route(flooded, slow, app="mallory", handlers=("http",), hard=100),
            route(mine, inside, app="shop", handlers=("http",)),
        )
        held = [await asyncio.open_connection(HOST, flooded) for _ in range(5)]
        for _, writer in held:
            writer.write(get())
        await eventually(lambda: host.edge._visits._inside.total == 5)
        assert b"HQ01" in await ask(flooded, get())
        assert b"200 OK" in await ask(mine, get())
        for _, writer in held:
            reset(cast(asyncio.Transport, writer.transport))
        await eventually(lambda: host.edge._visits._inside.total == 0)


async def test_a_host_starts_so_many_machines_at_once_and_the_next_when_one_is_up(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        ports = {app: free_port() for app in ("mallory", "shop", "bank")}
        machines = [
            route(ports[app], inside, app=app, handlers=("http",), state=State.STOPPED, soft=1)
            for app, count in (("mallory", 30), ("shop", 6), ("bank", 6))
            for _ in range(count)
        ]
        await host.publish(*machines)
        host.worker.on_wake = lambda machine: msgspec.structs.replace(machine, state=State.STARTING)
        answers = [asyncio.ensure_future(ask(ports["mallory"], get())) for _ in range(30)]
        await eventually(lambda: host.edge.held == 30)
        for app in ("shop", "bank"):
            answers += [asyncio.ensure_future(ask(ports[app], get())) for _ in range(6)]
        await eventually(lambda: host.edge.held == 42 and len(host.worker.wakes) == EDGE_WAKES.total)
        started = [host.worker.machines[each].app for each in host.worker.wakes]
        assert started.count(AppName("mallory")) == EDGE_WAKES.each, "others have their places"
        host.worker.on_wake = woken
        for machine_id in list(host.worker.wakes):
            host.worker.put(woken(host.worker.machines[machine_id]))
        assert all(b"200 OK" in answer for answer in await asyncio.gather(*answers))
        await eventually(lambda: not host.edge._visits._starting and not host.edge._visits._wakes.total)


async def test_a_machine_that_does_not_come_up_gives_its_place_among_the_wakes_back(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visits, "WAKE_TIMEOUT_S", 1.0)
    port = free_port()
    await host.publish(route(port, 1, handlers=("http",), state=State.STOPPED))
    host.worker.on_wake = lambda machine: machine
    assert b"PR03" in await ask(port, get())
    await eventually(lambda: host.edge._visits._wakes.total == 0)


async def test_a_start_that_ended_before_it_was_told_is_asked_for_again(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker tells what a machine is, not each state that it was in."""
    monkeypatch.setattr(visits, "_LEAVES_SLEEP_S", 0.3)
    async with app_server(says(OK)) as inside:
        port = free_port()
        machine = route(port, inside, handlers=("http",), state=State.STOPPED)
        await host.publish(machine)
        host.worker.on_wake = lambda found: woken(found) if len(host.worker.wakes) > 1 else found
        assert b"200 OK" in await ask(port, get())
        assert host.worker.wakes == [machine.id] * 2 and host.counted("wakes_refused") == 1
        await eventually(lambda: not host.edge._visits._accepted)


async def test_a_queue_that_is_never_empty_holds_up_the_first_of_another_one_no_longer_than_its_own(
    host: PlayedHost,
) -> None:
    """As one of another port of the app, or of another host."""
    machine, visits, now, order = route(free_port(), 1, hard=1), host.edge._visits, host.edge._now, list[str]()
    await host.publish(machine)
    aim = Aim(next(iter(host.edge._routes.doors)), machine.app)
    inside = await visits.begin(aim, now())

    async def come(name: str, queue: Callable[[], Awaitable[Visit]]) -> None:
        visit = await queue()
        order.append(name)
        for _ in range(10):  # others try meanwhile
            await anyio.lowlevel.checkpoint()
        visits.end(visit)

    here = partial(visits.begin, aim, now())
    there = partial(visits.admit, machine.app, machine.id, 0, now(), hold=True)
    async with anyio.create_task_group() as tasks:
        for name, queue in (("first", here), ("other", there), ("second", here), ("third", here)):
            waiting = visits.waiting
            tasks.start_soon(come, name, queue)
            await eventually(lambda: visits.waiting > waiting)  # noqa: B023
        visits.end(inside)
    assert order == ["first", "other", "second", "third"]


async def test_a_client_that_leaves_gives_its_place_back(host: PlayedHost) -> None:
    port = free_port()
    await host.publish(route(port, 1, handlers=("http",), state=State.STOPPED))
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(get())
    await eventually(lambda: host.edge.held == 1)
    writer.close()
    await eventually(lambda: host.edge.held == 0)
