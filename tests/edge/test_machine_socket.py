"""The last stretch of a flow of datagrams: what waits for a machine, and how its end is told."""

import pytest

from hawker.edge.machine_socket import FirstDatagrams, MachineSocket
from hawker.edge.refusal import Code, ProxyError
from hawker.edge.routes import Door
from hawker.edge.steering import Aim
from hawker.edge.visits import Visit
from hawker.ids import AppName
from tests.edge.edge_kit import HOST, PlayedHost
from tests.edge.udp_kit import udp_app, udp_route
from tests.ports import free_port
from tests.waiting import eventually


class Heard:
    """Keeps `FlowListener`."""

    def __init__(self) -> None:
        self.said: list[bytes] = []
        self.lost: list[ProxyError | None] = []

    def hear(self, data: bytes) -> None:
        self.said.append(data)

    def lose(self, why: ProxyError | None) -> None:
        self.lost.append(why)


async def visit_of(host: PlayedHost, internal: int) -> Visit:
    port = free_port()
    machine = udp_route(port, internal)
    await host.publish(machine)
    door = next(door for door in host.edge._routes.doors if door == Door(HOST, port, udp=True))
    return await host.edge._visits.begin(Aim(door, AppName(machine.app)), host.edge._now())


def test_first_datagrams_are_few_and_small() -> None:
    first, sent = FirstDatagrams(), list[bytes]()
    for data in (b"1", b"x" * 5000, b"2", b"3", b"4", b"5"):
        first.keep(data)
    first.send(sent.append)
    assert sent == [b"1", b"2", b"3", b"4"]


async def test_a_program_that_begins_late_gets_the_first_datagram(host: PlayedHost) -> None:
    inside, heard = free_port(), Heard()
    visit = await visit_of(host, inside)
    machine = MachineSocket(visit, heard)
    assert machine.send(b"hello") and machine.goes_on
    async with udp_app(port=inside):
        await eventually(lambda: b"got hello" in heard.said)
    machine.close()
    assert not machine.goes_on and machine.send(b"late"), "what comes after the end is nobody's"
    host.edge._visits.end(visit)


async def test_datagrams_that_nobody_has_heard_go_again_once_a_later_one_is_answered(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hawker.edge.machine_socket._FIRST_PAUSE_S", 600.0)
    inside, heard = free_port(), Heard()
    visit = await visit_of(host, inside)
    machine = MachineSocket(visit, heard)
    machine.send(b"1")
    await eventually(lambda: machine._unheard == 1)
    machine.send(b"2")
    await eventually(lambda: machine._unheard == 2)
    async with udp_app(port=inside) as (_, app):
        machine.send(b"3")
        await eventually(lambda: len(heard.said) == 3)
    assert app.heard == [b"3", b"1", b"2"] and not heard.lost
    machine.close()
    host.edge._visits.end(visit)


async def test_a_program_that_never_listens_ends_the_flow_with_a_cause(
    host: PlayedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hawker.edge.machine_socket._TRIES", 2)
    heard, inside = Heard(), free_port()
    visit = await visit_of(host, inside)
    machine = MachineSocket(visit, heard)
    machine.send(b"hello")
    await eventually(lambda: bool(heard.lost))
    (why,) = heard.lost[:1]
    assert why is not None and why.code is Code.PC01 and f"UDP port {inside}" in str(why.known)
    machine.close()
    host.edge._visits.end(visit)
