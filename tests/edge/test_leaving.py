"""An edge process that leaves while somebody is in there, and the one after it, which counts them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from hawker.clock import SystemClock
from hawker.edge.gates import Gate, Gates, LeftInside
from hawker.edge.leaving import EarlierProcesses, Leaver
from hawker.edge.routes import Routes
from hawker.host.own_user import WRITES
from tests.edge.edge_kit import HOST, OK, PlayedHost, app_server, ask, get, played_host, route, says
from tests.edge.test_splice_raw import echo_to_the_end
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who leaves is heard, however busy this host is."""
    monkeypatch.setattr("hawker.edge.leaving._FIRST_WORD_S", 60.0)


class Heard(Gates):
    """What those that leave have said, by name."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.5, {})
        self.said: dict[str, LeftInside] = {}

    def remain(self, process: str, left: LeftInside, now: float) -> None:
        self.said[process] = left


@asynccontextmanager
async def leaver(folder: Path, gates: Gates) -> AsyncIterator[anyio.CancelScope]:
    """One that has begun to leave."""
    begun, leaving = asyncio.Event(), Leaver(folder, 7, gates, SystemClock())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leaving.serve, 600.0, begun.set)
        await begun.wait()
        yield tasks.cancel_scope


def files(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir() if each.suffix == ".leaving"]


def gate_with(gates: Gates, count: int) -> Gate:
    machine = route(1, 1)
    gates.update(machine, 0.0)
    gate = gates.of[machine.id]
    for _ in range(count):
        gate.enter(0)
    return gate


async def test_a_process_that_leaves_says_who_is_left_at_once_and_at_each_change(tmp_path: Path) -> None:
    gates, heard = Gates(lambda: 0.5, {}), Heard()
    gate = gate_with(gates, 2)
    async with leaver(tmp_path, gates), anyio.create_task_group() as tasks:
        await EarlierProcesses(tmp_path, heard, SystemClock()).meet(tasks)
        assert heard.said == {"7": {gate.route.id: {0: 2}}}
        again = Heard()
        await EarlierProcesses(tmp_path, again, SystemClock()).meet(tasks)
        gate.leave(0, 1.0)
        await eventually(lambda: heard.said == again.said == {"7": {gate.route.id: {0: 1}}})
        gate.leave(0, 2.0)
        await eventually(lambda: heard.said == again.said == {"7": {}})
    assert files(tmp_path) == []


async def test_the_end_of_who_leaves_is_heard_however_it_comes(tmp_path: Path) -> None:
    gates, heard = Gates(lambda: 0.5, {}), Heard()
    gate_with(gates, 1)
    async with anyio.create_task_group() as tasks:
        async with leaver(tmp_path, gates) as scope:
            await EarlierProcesses(tmp_path, heard, SystemClock()).meet(tasks)
            assert heard.said["7"]
            scope.cancel()
        await eventually(lambda: heard.said == {"7": {}})


async def test_the_socket_of_one_that_was_killed_is_removed(tmp_path: Path) -> None:
    server = await asyncio.start_unix_server(lambda reader, writer: None, tmp_path / "9.leaving")
    server.close()
    (tmp_path / "8.leaving").touch()
    heard = Heard()
    async with anyio.create_task_group() as tasks:
        await EarlierProcesses(tmp_path, heard, SystemClock()).meet(tasks)
    assert heard.said == {} and files(tmp_path) == []


def test_those_in_an_earlier_process_are_in_the_machine_and_in_no_way_of_a_stop() -> None:
    gates, machine, emptied = Gates(lambda: 0.5, {}), route(1, 1, hard=2), list[int]()
    gates.remain("7", {machine.id: {0: 2}}, 0.0)
    gates.update(machine, 0.0)
    gate = gates.of[machine.id]
    routes = Routes()
    routes.replace([machine], (HOST,))
    targets = [target for apps in map(routes.apps, routes.doors) for each in apps.values() for target in each.values()]
    assert (gate.total, gate.lasting, gate.inside) == (2, 2, {})
    assert gates.choose(targets, 1.0) is None and gates.may_open(targets), "it is full, and waiting helps"
    gates.remain("7", {machine.id: {0: 1}}, 3.0)
    assert gates.choose(targets, 3.0) is not None and gate.busy_at == 3.0
    gate.enter(0)
    assert gate.inside == {0: 1}
    assert machine.instance is not None
    gate.close(machine.instance, lambda: emptied.append(1))
    gate.leave(0, 4.0)
    assert emptied, "who is left in an earlier process is not waited for"
    gates.remain("7", {}, 5.0)
    assert gate.total == gate.lasting == 0


def test_gates_that_are_shut_let_nobody_in_and_have_nobody_wait() -> None:
    gates, machine = Gates(lambda: 0.5, {}), route(1, 1)
    gates.update(machine, 0.0)
    routes = Routes()
    routes.replace([machine], (HOST,))
    targets = [target for apps in map(routes.apps, routes.doors) for each in apps.values() for target in each.values()]
    assert gates.choose(targets, 0.0) is not None
    gates.shut()
    assert gates.choose(targets, 0.0) is None and not gates.may_open(targets)


async def test_a_process_that_leaves_carries_on_and_the_next_one_keeps_its_hard_limit(host: PlayedHost) -> None:
    """Two processes in one: the second has the folder of the first."""
    async with app_server(echo_to_the_end) as inside, played_host() as second:
        port = free_port()
        machine = route(port, inside, hard=1)
        await host.publish(machine)
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"a long word")
        await eventually(lambda: host.edge.gates.have_inside)
        await host.edge.drain(5.0)
        host.tasks.start_soon(host.edge.leave)
        own = host.folder / WRITES
        await eventually(lambda: files(own))
        async with anyio.create_task_group() as tasks:
            await EarlierProcesses(own, second.edge.gates, SystemClock()).meet(tasks)
            for listener in chain(*host.sockets.bound.values()):
                listener.close()
            await second.publish(machine)
            assert second.edge.gates.of[machine.id].total == 1, "it counts who came in before it"
            later_reader, later = await asyncio.open_connection(HOST, port)
            later.write(b"later")
            later.write_eof()
            await eventually(lambda: second.edge.held == 1)
            writer.write(b" ends")
            writer.write_eof()
            assert await reader.read() == b"got a long word ends"
            assert await later_reader.read() == b"got later"
            writer.close()
            later.close()
        assert files(own) == []


async def test_a_process_that_leaves_waits_as_long_as_the_settings_say(host: PlayedHost) -> None:
    async with app_server(echo_to_the_end) as inside:
        port = free_port()
        await host.publish(route(port, inside))
        host.worker.say(replace(host.worker.whole(), drain_s=0.0))
        _, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"a long word")
        await eventually(lambda: host.edge.gates.have_inside)
        with anyio.fail_after(60):
            await host.edge.leave()
        assert host.edge.gates.have_inside
        writer.close()


async def test_a_machine_with_somebody_in_an_earlier_process_does_not_rest(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        machine = route(port, inside, handlers=("http",), autostop=True, idle_s=0.1)
        host.worker.on_rest = lambda machine: machine
        host.edge.gates.remain("7", {machine.id: {0: 1}}, 0.0)
        await host.publish(machine)
        assert b"200 OK" in await ask(port, get())
        await eventually(lambda: not host.edge.gates.of[machine.id].inside)
        assert not list(host.edge._rests([host.edge.gates.of[machine.id]], 1e9))
        host.edge.gates.remain("7", {}, 0.0)
        assert list(host.edge._rests([host.edge.gates.of[machine.id]], 1e9))
