"""A conversation over a real WebSocket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import pytest

from hawker.api.client import Client
from hawker.api.contract.exec import MACHINE_TERMINAL, Exited, Input, InputEnd, Output, Resize, TerminalRequest
from hawker.api.contract.machine import MachineParams
from hawker.api.handlers import Handlers, SocketChannel
from hawker.api.route import Call
from hawker.errors import Fault, HawkerError, NotFound, Unavailable
from hawker.log import Secret
from tests.api.serving import Served, served
from tests.waiting import eventually

pytestmark = pytest.mark.anyio
PARAMS = MachineParams(app_name="a", machine_id="m")
REQUEST = TerminalRequest(command=("cat",), tty=True, rows=50)
PATH = "/hawker/v1/apps/a/machines/m/terminal"


class Cat:
    """Says what it hears, exits when the input ends; raises what it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.calls: list[Call[Any, Any, Any]] = []
        self.sizes: list[tuple[int, int]] = []
        self.ended = False

    async def run(self, call: Call[Any, Any, Any], channel: SocketChannel[Any, Any]) -> None:
        self.calls.append(call)
        try:
            while (message := await channel.receive()) is not None:
                match message:
                    case Input(data=data):
                        await channel.send(Output(stream=1, data=data))
                    case Resize(rows=rows, cols=cols):
                        self.sizes.append((rows, cols))
                    case InputEnd():
                        await self._end(channel)
        finally:
            self.ended = True

    async def _end(self, channel: SocketChannel[Any, Any]) -> None:
        if self._error is not None:
            raise self._error
        await channel.send(Exited(exit_code=3, signal=0))


@asynccontextmanager
async def serving(cat: Cat) -> AsyncIterator[Served]:
    handlers = Handlers()
    handlers.socket(MACHINE_TERMINAL, cat.run)
    async with served(handlers, [MACHINE_TERMINAL]) as node:
        yield node


async def test_messages_go_both_ways_and_bytes_stay_bytes() -> None:
    cat = Cat()
    async with serving(cat) as node, node.client.socket(MACHINE_TERMINAL, REQUEST, params=PARAMS) as channel:
        await channel.send(Resize(rows=10, cols=20))
        await channel.send(Input(data=bytes(range(256))))
        assert await channel.receive() == Output(stream=1, data=bytes(range(256)))
        await channel.send(InputEnd())
        assert await channel.receive() == Exited(exit_code=3, signal=0)
    (call,) = cat.calls
    assert (call.body, call.params, call.caller) == (REQUEST, PARAMS, "alice") and cat.sizes == [(10, 20)]


@pytest.mark.parametrize(
    ("raised", "told"),
    [(NotFound("machine not found"), NotFound), (ZeroDivisionError("secret"), Fault)],
)
async def test_an_error_is_the_last_message(raised: Exception, told: type[HawkerError]) -> None:
    async with serving(Cat(raised)) as node, node.client.socket(MACHINE_TERMINAL, REQUEST, params=PARAMS) as channel:
        await channel.send(InputEnd())
        with pytest.raises(told) as caught:
            await channel.receive()
        assert await channel.receive() is None and "secret" not in str(caught.value)


async def test_a_message_that_cannot_be_read_ends_the_conversation() -> None:
    async with serving(Cat()) as node, node.http.ws_connect(PATH) as socket:
        await socket.send_str('{"command":["cat"]}')
        await socket.send_str('{"type":"nonsense"}')
        assert '"http_status":422' in (await socket.receive()).data


@pytest.mark.parametrize(("opening", "status"), [("{", 400), ('{"command":7}', 422), ("{}", 422)])
async def test_a_bad_opening_is_answered(opening: str, status: int) -> None:
    cat = Cat()
    async with serving(cat) as node, node.http.ws_connect(PATH) as socket:
        await socket.send_str(opening)
        assert f'"http_status":{status}' in (await socket.receive()).data
    assert not cat.calls


async def test_a_handler_ends_when_its_client_goes() -> None:
    cat = Cat()
    async with serving(cat) as node:
        async with node.client.socket(MACHINE_TERMINAL, REQUEST, params=PARAMS) as channel:
            await channel.send(Input(data=b"x"))
            await channel.receive()
        await eventually(lambda: cat.ended)


async def test_a_conversation_ends_when_the_server_stops() -> None:
    cat = Cat()
    async with serving(cat) as node, node.client.socket(MACHINE_TERMINAL, REQUEST, params=PARAMS) as channel:
        await eventually(lambda: cat.calls)
        node.server.stop()
        with anyio.fail_after(60), pytest.raises(Unavailable, match="the node is stopping"):
            await channel.receive()


@pytest.mark.parametrize(("path", "token", "status"), [(PATH, "stolen", 401), ("/nothing", "token", 404)])
async def test_a_handshake_is_refused_with_a_typed_body(path: str, token: str, status: int) -> None:
    cat = Cat()
    headers = {"Authorization": f"Bearer {token}"}
    async with serving(cat) as node, aiohttp.ClientSession(node.url, headers=headers) as http:
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await http.ws_connect(path)
    assert caught.value.status == status and not cat.calls


async def test_a_refused_handshake_is_the_familys_error_to_our_client() -> None:
    async with serving(Cat()) as node, Client(node.url, Secret("stolen")) as stranger:
        with pytest.raises(HawkerError) as caught:
            async with stranger.socket(MACHINE_TERMINAL, REQUEST, params=PARAMS):
                pytest.fail("it opened")
    assert caught.value.status == 401
    assert "HTTP status" not in str(caught.value), "it has the node's own words"
