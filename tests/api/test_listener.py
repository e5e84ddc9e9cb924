import socket
import tempfile
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.to_thread
import pytest

from hawker.api.contract.app import CREATE_APP, LIST_APPS, App
from hawker.api.handlers import Handlers
from hawker.api.listener import BehindEdge, bind, bind_for_machines, listening, serving, url_of
from hawker.api.route import Call
from hawker.api.routes import ROUTES
from hawker.api.server import Server
from hawker.clock import SystemClock
from hawker.errors import CannotStart
from hawker.host import netns
from hawker.host.local_socket import listen_at
from tests.api.samples import sample
from tests.api.serving import TOKEN, Fake, authenticate, served, use
from tests.ports import free_port

pytestmark = pytest.mark.anyio


def _server() -> Server:
    return Server(Fake().handlers(ROUTES), authenticate, SystemClock())


async def test_a_port_in_use_is_refused_with_what_to_do() -> None:
    async with listening(_server(), "127.0.0.1", 0) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(
            CannotStart, match=rf"cannot listen on 127.0.0.1:{port}: another program .*another with --listen"
        ):
            bind("127.0.0.1", port)


@pytest.mark.root
def test_the_address_for_machines_is_bound_before_it_is_there_and_by_one_node_of_a_host(tmp_path: Path) -> None:
    def bind_twice() -> None:
        with bind_for_machines() as listener:
            assert listener.getsockname()[:2] == ("fdaa::3", 4280)
            with pytest.raises(CannotStart, match="of the nodes of one host, one answers --machine-api"):
                bind_for_machines()

    host = tmp_path / "host"
    netns.create(host, lambda namespace: None)
    try:
        netns.inside(host, bind_twice)
    finally:
        netns.delete(host)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 99999), ("no such host", 0)])
def test_a_text_that_is_no_address_is_refused(host: str, port: int) -> None:
    with pytest.raises(CannotStart, match="cannot listen on"):
        bind(host, port)


def test_an_ipv6_address_is_in_brackets_in_the_url() -> None:
    listener = bind("::1", 0)
    with listener:
        assert url_of(listener) == f"http://[::1]:{listener.getsockname()[1]}"


async def test_a_bound_socket_is_served_and_closed_at_the_end() -> None:
    listener = bind("127.0.0.1", free_port())
    async with serving(_server(), listener) as url, aiohttp.ClientSession(url) as http, http.get("/docs") as response:
        assert response.status == 200
    assert listener.fileno() == -1
    with socket.socket() as again:
        assert again.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) != 0


async def test_a_call_under_way_ends_before_the_server_does() -> None:
    begun, go = anyio.Event(), anyio.Event()

    async def create(call: Call[Any, Any, Any]) -> App:
        begun.set()
        await go.wait()
        answer: App = sample(App)
        return answer

    handlers = Handlers()
    handlers.on(CREATE_APP, create)
    answers: list[App] = []
    async with served(handlers, [CREATE_APP]) as node, anyio.create_task_group() as group:

        async def ask() -> None:
            answers.append(await use(node, CREATE_APP))

        group.start_soon(ask)
        await begun.wait()
        node.server.stop()
        go.set()
    assert answers == [sample(App)]


async def test_an_error_inside_is_not_hidden_by_the_end() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        async with listening(_server(), "127.0.0.1", 0):
            raise LookupError("inside")
    assert caught.group_contains(LookupError)


async def test_two_servers_do_not_know_each_other() -> None:
    async with served(Fake().handlers(ROUTES)) as one, served(Fake().handlers(ROUTES)) as two:
        assert one.url != two.url
        assert await use(one, LIST_APPS) == await use(two, LIST_APPS)


async def test_a_server_that_stops_answers_what_was_on_its_way_and_asks_for_another_connection() -> None:
    listener = bind("127.0.0.1", 0)
    async with anyio.create_task_group() as group, aiohttp.ClientSession(url_of(listener)) as http:
        stop, up = anyio.Event(), anyio.Event()

        async def serve() -> None:
            async with serving(_server(), listener):
                up.set()
                await stop.wait()

        group.start_soon(serve)
        await up.wait()
        async with http.get("/docs") as before:
            assert await before.read() and "close" not in before.headers.get("connection", "")
        stop.set()
        while listener.fileno() != -1:
            await anyio.lowlevel.checkpoint()
        async with http.get("/docs") as late:  # on the connection that is open still
            assert (late.status, late.headers["connection"]) == (200, "close")


async def test_a_call_that_the_edge_brings_comes_from_where_the_edge_says() -> None:
    fake = Fake()
    server = Server(fake.handlers([LIST_APPS]), authenticate, SystemClock(), routes=[LIST_APPS])
    with tempfile.TemporaryDirectory() as folder:  # a path that aiohttp can name
        path = Path(folder) / "api.sock"
        async with (
            serving(BehindEdge(server), listen_at(path, None)),
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as http,
        ):
            for told in ("192.0.2.7", "2001:db8::7", ""):
                headers = {"Authorization": f"Bearer {TOKEN.reveal()}", "Fly-Client-IP": told}
                async with http.get("http://api.example.com/v1/apps", headers=headers) as response:
                    assert response.status == 200
    assert [call.source for call in fake.calls] == ["192.0.2.7", "2001:db8::7", ""]
