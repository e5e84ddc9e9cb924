"""What the client asks, and what it makes of a node that is away, slow, foreign or broken."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from msgspec.structs import replace

from hawker.api.client import WITHIN_S, Client, RateLimitRetry
from hawker.api.contract.app import LIST_APPS, AppParams
from hawker.api.contract.image import PRUNE_IMAGES
from hawker.api.contract.machine import LIST_MACHINES, ListMachinesQuery, MachineParams, StopRequest
from hawker.api.contract.machine_operation import STOP_MACHINE
from hawker.api.failure import TooLongAnswer
from hawker.api.route import MAX_REMARK_BYTES, AnyRoute, Stream, Upload
from hawker.api.routes import ROUTES
from hawker.clock import ManualClock
from hawker.errors import (
    BadRequest,
    Conflict,
    DeadlineExceeded,
    Fault,
    HawkerError,
    RateLimited,
    Unauthorized,
    Unavailable,
)
from hawker.http.message import MAX_ANSWER_BYTES
from hawker.log import Secret
from tests.api.samples import sample
from tests.api.serving import TOKEN, Fake, served
from tests.ports import free_port

pytestmark = pytest.mark.anyio
PARAMS = MachineParams(app_name="a/b", machine_id="m")
APPS = b'{"total_apps":0,"apps":[]}'


@asynccontextmanager
async def foreign(*pieces: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers each connection with these pieces and closes it; its URL, and what it was sent."""
    heard: list[bytes] = []

    async def answer(stream: SocketStream) -> None:
        async with stream:
            heard.append(await stream.receive())
            for piece in pieces:
                await stream.send(piece)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, answer)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}", heard
        group.cancel_scope.cancel()


async def called(client: Client, route: AnyRoute, **options: Any) -> Any:
    """The answer to the one call of a client."""
    async with client:
        return await client.call(route, **options)  # type: ignore[arg-type]


def _answer(body: bytes, head: str = "HTTP/1.1 200 OK") -> bytes:
    return f"{head}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def test_call_arrives_as_it_was_meant_and_so_does_its_answer() -> None:
    fake = Fake()
    async with served(fake.handlers(ROUTES)) as node:
        client = node.client
        answer = await client.call(STOP_MACHINE, params=PARAMS, body=StopRequest(signal="SIGTERM"), nonce="n")
        call = fake.calls[0]
        assert answer == sample(STOP_MACHINE.response)
        assert (call.params, call.body, call.nonce, call.caller) == (
            PARAMS,
            StopRequest(signal="SIGTERM"),
            "n",
            "alice",
        )
        page = await client.call(LIST_MACHINES, params=AppParams(app_name="a"), query=ListMachinesQuery(limit=2))
        assert page == sample(LIST_MACHINES.response) and fake.calls[1].query.limit == 2


async def test_error_is_raised_as_the_node_raised_it() -> None:
    async with served(Fake(error=Unauthorized("who are you")).handlers(ROUTES)) as node:
        with pytest.raises(Unauthorized, match="who are you"):
            await called(Client(node.url, TOKEN), LIST_APPS)
        with pytest.raises(Unauthorized):
            await called(Client(node.url), LIST_APPS)


async def test_node_that_is_away_is_unavailable_and_the_error_says_what_to_do() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable, match=rf"cannot reach {url}: is the node running\? start one with `hawker up`"):
        await called(Client(url), LIST_APPS)


async def test_node_that_does_not_answer_in_time_is_given_up() -> None:
    async def once(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(_answer(APPS))
            await anyio.sleep_forever()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, once)
        async with Client(f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}") as client:
            await client.call(LIST_APPS)  # so there is a connection: to open none in time is another error
            with pytest.raises(DeadlineExceeded, match="no answer from"):
                await client.call(LIST_APPS, timeout_s=0.05)
        group.cancel_scope.cancel()


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (b"HTTP/1.1 200 OK\r\ncontent-le",),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",),
        (b"SSH-2.0-OpenSSH_9.2\r\n",),
    ],
)
async def test_connection_that_breaks_before_the_answer_is_a_fault_because_nobody_knows(
    pieces: tuple[bytes, ...],
) -> None:
    async with foreign(*pieces) as (url, _):
        with pytest.raises(Fault, match="was lost"):
            await called(Client(url), PRUNE_IMAGES)


@pytest.mark.parametrize(
    ("head", "text", "kind", "says"),
    [
        ("HTTP/1.1 200 OK", "<html>", Fault, "answered in a way that this version does not know"),
        ("HTTP/1.1 200 OK", '{"apps":7}', Fault, "answered in a way that this version does not know"),
        ("HTTP/1.1 502 Bad Gateway", "bad gateway", Fault, "HTTP status 502: bad gateway"),
        ("HTTP/1.1 302 Found", "", HawkerError, "HTTP status 302: no text"),
        ("HTTP/1.1 401 No", '{"error":"who are you","status":"unknown"}', Unauthorized, "who are you"),
    ],
)
async def test_answer_of_a_foreign_server_is_an_error_of_the_family(
    head: str, text: str, kind: type[HawkerError], says: str
) -> None:
    async with foreign(_answer(text.encode(), head)) as (url, _):
        with pytest.raises(kind, match=says):
            await called(Client(url), LIST_APPS)


@pytest.mark.parametrize(
    "pieces",
    [
        (_answer(APPS)[:30], _answer(APPS)[30:60], _answer(APPS)[60:]),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            b"5\r\n",
            APPS[:5],
            b"\r\n15\r\n" + APPS[5:],
            b"\r\n0\r\n\r\n",
        ),
        (b"HTTP/1.0 200 OK\r\nserver: old\r\n\r\n", APPS),
    ],
    ids=["in pieces", "chunked", "to the end of the connection"],
)
async def test_answer_is_read_whole_however_it_comes(pieces: tuple[bytes, ...]) -> None:
    async with foreign(*pieces) as (url, _):
        assert (await called(Client(url), LIST_APPS)).apps == ()


async def test_path_of_the_address_is_kept_and_its_password_is_not_sent_as_the_host() -> None:
    async with foreign(_answer(APPS)) as (url, heard):
        await called(Client(f"{url.replace('//', '//me:secret@')}/below/"), LIST_APPS)
    line, host, *_ = heard[0].decode().split("\r\n")
    assert line == "GET /below/v1/apps HTTP/1.1" and host == f"host: {url.removeprefix('http://')}"


@pytest.mark.parametrize(
    "url", ["", "nonsense", "ftp://host", "http://", "http://host:0", "http://host:99999", "http://[::1"]
)
async def test_url_that_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(BadRequest, match=rf"{re.escape(repr(url.rstrip('/')))} is not a node's address"):
        await called(Client(url), LIST_APPS)


async def test_line_breaks_cannot_be_slipped_into_a_request() -> None:
    async with foreign(_answer(APPS)) as (url, heard):
        for client, nonce in ((Client(url, Secret("a\r\nx: y")), None), (Client(url), "n\r\n\r\nGET / HTTP/1.1")):
            with pytest.raises(BadRequest, match="line break"):
                await called(client, STOP_MACHINE, params=PARAMS, nonce=nonce)
    assert heard == []


class _Turns:
    """Refuses so many calls before it lets one pass."""

    def __init__(self, refusals: int) -> None:
        self.left = refusals

    def spend(self, route: AnyRoute, params: Mapping[str, str], *, root: bool) -> None:
        if self.left:
            self.left -= 1
            raise RateLimited("rate limit exceeded")


async def test_call_refused_with_429_is_made_again_and_done_once() -> None:
    fake, clock = Fake(), ManualClock()
    began = clock.monotonic()
    async with served(fake.handlers(ROUTES), limiter=_Turns(3)) as node:
        client = Client(node.url, TOKEN, retry=RateLimitRetry(clock))
        assert await called(client, STOP_MACHINE, params=PARAMS) == sample(STOP_MACHINE.response)
    assert len(fake.calls) == 1 and clock.monotonic() > began


async def test_call_refused_with_429_is_raised_without_a_retry() -> None:
    async with served(Fake().handlers(ROUTES), limiter=_Turns(1)) as node:
        with pytest.raises(RateLimited):
            await node.client.call(STOP_MACHINE, params=PARAMS)


async def test_calls_share_a_connection_and_the_token_is_sent_with_each() -> None:
    heard: list[bytes] = []

    async def answer(stream: SocketStream) -> None:
        async with stream:
            for _ in range(2):
                heard.append(await stream.receive())
                await stream.send(_answer(APPS))

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, answer)
        async with Client(f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}", TOKEN) as client:
            assert [(await client.call(LIST_APPS)).total_apps for _ in range(2)] == [0, 0]
        group.cancel_scope.cancel()
    assert [f"Authorization: Bearer {TOKEN.reveal()}".encode() in request for request in heard] == [True, True]


async def test_client_on_behalf_of_a_caller_names_it_and_shares_the_connections() -> None:
    async with foreign(_answer(APPS)) as (url, heard), Client(url) as client:
        await client.on_behalf("ann").call(LIST_APPS)
    assert b"hawker-caller: ann" in heard[0]


async def test_closed_client_opens_again() -> None:
    async with served(Fake().handlers(ROUTES)) as node:
        await node.client.call(LIST_APPS)
        await node.client.close()
        assert (await node.client.call(LIST_APPS)).total_apps == 1


class Node:
    """Refuses until a moment."""

    def __init__(self, clock: ManualClock, until: float) -> None:
        self.clock, self.until, self.asked = clock, clock.monotonic() + until, list[float]()

    async def answer(self) -> str:
        self.asked.append(self.clock.monotonic())
        if self.clock.monotonic() < self.until:
            raise RateLimited("rate limit exceeded")
        return "done"


async def test_a_call_is_made_again_until_it_is_its_turn() -> None:
    clock = ManualClock()
    node = Node(clock, 10.0)
    assert await RateLimitRetry(clock)(node.answer) == "done"
    assert clock.monotonic() - node.until < 4.6


async def test_pauses_grow_and_stay_short() -> None:
    clock = ManualClock()
    node = Node(clock, 60.0)
    await RateLimitRetry(clock)(node.answer)
    pauses = [after - before for before, after in zip(node.asked, node.asked[1:], strict=False)]
    assert 0.2 <= pauses[0] <= 0.6 and max(pauses) <= 4.5 and min(pauses[6:]) >= 1.5


async def test_two_that_begin_together_do_not_stay_together() -> None:
    moments = []
    for seed in (1, 2):
        clock = ManualClock(seed=seed)
        node = Node(clock, 10.0)
        await RateLimitRetry(clock)(node.answer)
        moments.append(node.asked[1:])
    assert not set(moments[0]) & set(moments[1])


async def test_a_client_gives_up_in_the_end() -> None:
    clock = ManualClock()
    node = Node(clock, 1e9)
    with pytest.raises(RateLimited):
        await RateLimitRetry(clock)(node.answer)
    assert WITHIN_S - 5 < node.asked[-1] - node.asked[0] <= WITHIN_S


async def test_any_other_error_is_the_callers_at_once() -> None:
    clock = ManualClock()
    asked = []

    async def held() -> None:
        asked.append(1)
        raise Conflict("lease")

    with pytest.raises(Conflict):
        await RateLimitRetry(clock)(held)
    assert asked == [1]


_PIECE = b"x" * 65536
_BOUND = 1024 * 1024


@asynccontextmanager
async def endless(head: str) -> AsyncIterator[tuple[str, anyio.Event]]:
    """A peer that sends a body for as long as somebody takes it; its URL, and when nobody did any more."""
    cut = anyio.Event()

    async def answer(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            try:
                await stream.send(f"{head}\r\n\r\n".encode())
                while True:
                    await stream.send(b"10000\r\n" + _PIECE + b"\r\n")
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                cut.set()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, answer)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}", cut
        group.cancel_scope.cancel()


async def _comes(cut: anyio.Event) -> None:
    with anyio.fail_after(60):
        await cut.wait()


@pytest.mark.parametrize("status", ["200 OK", "503 Service Unavailable"])
async def test_answer_without_end_is_cut_off_with_an_error_of_its_own(status: str) -> None:
    route = replace(LIST_APPS, answer_bytes=_BOUND)
    async with endless(f"HTTP/1.1 {status}\r\ntransfer-encoding: chunked") as (url, cut):
        with pytest.raises(TooLongAnswer, match=f"more than {_BOUND} bytes"):
            await called(Client(url), route, query=sample(route.query))
        await _comes(cut)


async def test_refusal_of_a_stream_and_answer_to_an_upload_without_end_are_cut_off() -> None:
    async def nothing() -> AsyncIterator[bytes]:
        yield b""

    stream = next(route for route in ROUTES if isinstance(route, Stream))
    upload = next(route for route in ROUTES if isinstance(route, Upload))
    async with endless("HTTP/1.1 503 Service Unavailable\r\ntransfer-encoding: chunked") as (url, cut):
        async with Client(url) as client:
            with pytest.raises(TooLongAnswer):
                async with client.stream(stream, params=sample(stream.params), query=sample(stream.query)):
                    pass
        await _comes(cut)
    async with endless("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked") as (url, cut):
        async with Client(url) as client:
            with pytest.raises(TooLongAnswer):
                await client.upload(upload, nothing(), params=sample(upload.params), query=sample(upload.query))
        await _comes(cut)


def test_every_route_bounds_its_answer() -> None:
    assert all(0 < route.answer_bytes <= MAX_ANSWER_BYTES for route in ROUTES)
    assert all(route.answer_bytes == MAX_REMARK_BYTES for route in ROUTES if isinstance(route, Upload))
