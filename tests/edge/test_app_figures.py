"""What is counted of each app and machine, and for how many of them."""

import asyncio
import ssl

import pytest

from hawker.edge.app_figures import MOST_APPS, MOST_MACHINES, MOST_STATUSES, AppFigures
from hawker.feed import RESPONSE_S, AppFigure, MachineFigure
from hawker.ids import AppName
from hawker.machine import State
from tests.edge.edge_kit import HOST, OK, PlayedHost, app_server, ask, get, read_request, route, says
from tests.edge.test_tls_connection import HTTPS, ask_tls, certify, sealed
from tests.edge.test_visits import woken
from tests.ports import free_port
from tests.waiting import eventually

SHOP = AppName("shop")


def of_shop(host: PlayedHost) -> AppFigure:
    """What the edge of a played host has of it."""
    return next(each for each in host.edge.figures.apps({}) if each.app == SHOP)


def only_machine(host: PlayedHost) -> MachineFigure:
    (told,) = host.edge.figures.machines()
    return told


def test_answers_are_counted_by_status_and_time() -> None:
    figures = AppFigures()
    for status, seconds in ((200, 0.001), (200, 0.005), (503, 60.0)):
        figures.answered(SHOP, status, seconds)
    figures.answered(None, 404, 0.1)
    figures.connected(SHOP)
    (told,) = figures.apps({})
    assert told.statuses == {"200": 2, "503": 1} and (told.connects, told.disconnects) == (1, 0)
    assert told.buckets[0] == 2 and told.buckets[-1] == 1 and len(told.buckets) == len(RESPONSE_S) + 1
    assert told.seconds == 60.006


def test_the_app_that_was_served_longest_ago_is_forgotten() -> None:
    figures = AppFigures()
    for number in range(MOST_APPS):
        figures.answered(AppName(f"a{number}"), 200, 0.0)
    figures.answered(AppName("a0"), 200, 0.0)
    figures.answered(SHOP, 200, 0.0)
    known = {each.app for each in figures.apps({})}
    assert len(known) == MOST_APPS and {"a0", "shop"} <= known and "a1" not in known


def test_the_machine_that_was_used_longest_ago_is_forgotten() -> None:
    figures, first = AppFigures(), route(80, 8080)
    figures.machine_answered(first, 200, 0.1)
    figures.machine_dialled(first, 0.2)
    figures.machine_connected(first)
    figures.machine_disconnected(first)
    (told,) = figures.machines()
    assert (told.app, told.machine, told.statuses) == (first.app, first.id, {"200": 1})
    assert (told.answers.seconds, told.dials.seconds, told.connects, told.disconnects) == (0.1, 0.2, 1, 1)
    for _ in range(MOST_MACHINES):
        figures.machine_connected(route(80, 8080))
    known = {each.machine for each in figures.machines()}
    assert len(known) == MOST_MACHINES and first.id not in known


def test_statuses_without_an_end_are_counted_by_their_first_digit() -> None:
    figures = AppFigures()
    for status in range(200, 200 + MOST_STATUSES):
        figures.answered(SHOP, status, 0.0)
    for status in (200, 598, 599):
        figures.answered(SHOP, status, 0.0)
    (told,) = figures.apps({})
    assert len(told.statuses) == MOST_STATUSES + 1 and told.statuses["200"] == 2 and told.statuses["5xx"] == 2


def test_an_app_that_only_waits_is_told_of() -> None:
    (told,) = AppFigures().apps({"shop": 3})
    assert (told.app, told.held) == (SHOP, 3)


async def test_a_request_is_counted_for_its_app_and_its_machine(host: PlayedHost) -> None:
    async with app_server(says(OK)) as inside:
        port, host.worker.on_wake = free_port(), woken
        machine = route(port, inside, handlers=("http",), state=State.STOPPED)
        await host.publish(machine)
        assert b"200 OK" in await ask(port, get("/", "Content-Length: 5", method="POST") + b"hello")
    app, of = of_shop(host), only_machine(host)
    assert (app.statuses, app.bytes_in, app.bytes_out, sum(app.buckets)) == ({"200": 1}, 5, 2, 1)
    assert app.events["wakes"] == 1 and sum(app.wakes.buckets) == 1
    assert (of.app, of.machine, of.statuses) == (SHOP, machine.id, {"200": 1})
    assert sum(of.answers.buckets) == sum(of.dials.buckets) == 1


async def test_an_error_is_counted_for_the_app_and_for_no_machine(host: PlayedHost) -> None:
    port = free_port()
    await host.publish(route(port, 1, handlers=("http",), state=State.STOPPED, autostart=False))
    answer = await ask(port, get())
    assert b"PR01" in answer
    app = of_shop(host)
    assert app.statuses == {"503": 1} and app.events == {"errors_PR01": 1}
    assert app.bytes_out == len(answer.partition(b"\r\n\r\n")[2]) and host.edge.figures.machines() == ()


async def test_bytes_of_a_raw_connection_are_counted_while_it_lasts(host: PlayedHost) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(b"you said " + line)

    async with app_server(answer) as inside:
        port = free_port()
        await host.publish(route(port, inside))
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"hello\n")
        assert await reader.readline() == b"you said hello\n"
        app, of = of_shop(host), only_machine(host)
        assert (app.bytes_in, app.bytes_out, app.connects, app.disconnects) == (6, 15, 1, 0)
        assert (of.connects, of.disconnects) == (1, 0)
        writer.close()
        await eventually(lambda: of_shop(host).disconnects == only_machine(host).disconnects == 1)


async def test_an_upgraded_connection_is_an_answer_and_its_bytes_count(host: PlayedHost) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n")
        writer.write(await reader.readline())

    async with app_server(echo) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=("http",)))
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"GET / HTTP/1.1\r\nHost: shop\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\nhello\n")
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readline() == b"hello\n"
        writer.close()
    app = of_shop(host)
    assert (app.statuses, app.bytes_in, app.bytes_out) == ({"101": 1}, 6, 6)
    assert app.events["upgrades"] == 1


async def test_handshakes_are_counted_by_version_and_those_that_fail_for_the_app_that_was_meant(
    host: PlayedHost,
) -> None:
    async with app_server(says(OK)) as inside:
        port = free_port()
        await host.publish(route(port, inside, handlers=HTTPS))
        await certify(host, sealed("shop.example.com"))
        assert b"200 OK" in await ask_tls(port, "shop.example.com", get(host="shop.example.com"))
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"no TLS at all")
        await reader.read()
        assert of_shop(host).tls_errors == 0, "nobody was meant"
        careful = ssl.create_default_context()  # it does not know who signed, and leaves before TLS 1.2 is done
        careful.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError):
            await ask_tls(port, "shop.example.com", b"", careful)
        await eventually(lambda: of_shop(host).tls_errors == 1)
    assert {name: sum(times.buckets) for name, times in of_shop(host).handshakes.items()} == {"TLSv1.3": 1}
