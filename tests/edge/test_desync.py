"""Requests and answers that two readers could cut in two ways: each is refused, or goes on so that there is one way.

What a machine gets is read by h11, which had no part in writing it.
"""

import asyncio

import anyio
import h11
import pytest

from hawker.edge import exchange
from tests.edge.edge_kit import HOST, OK, PlayedHost, app_server, ask, get, route
from tests.ports import free_port
from tests.waiting import eventually

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def post(fields: bytes, body: bytes = b"", *, line: bytes = b"POST / HTTP/1.1") -> bytes:
    return line + b"\r\nHost: a\r\n" + fields + b"\r\n" + body


REFUSED = {
    "CL.TE": post(b"Content-Length: 40\r\n" + CHUNKED, b"0\r\n\r\n" + SMUGGLED),
    "TE.CL": post(CHUNKED + b"Content-Length: 4\r\n", b"23\r\n" + SMUGGLED + b"\r\n0\r\n\r\n"),
    "CL.0 beside chunked": post(b"Content-Length: 0\r\n" + CHUNKED, SMUGGLED),
    "two equal lengths": post(b"Content-Length: 3\r\nContent-Length: 3\r\n", b"abc"),
    "two lengths": post(b"Content-Length: 0\r\nContent-Length: 35\r\n", SMUGGLED),
    "listed lengths": post(b"Content-Length: 3, 3\r\n", b"abc"),
    "length with a sign": post(b"Content-Length: +3\r\n", b"abc"),
    "negative length": post(b"Content-Length: -1\r\n", SMUGGLED),
    "length in hex": post(b"Content-Length: 0x3\r\n", b"abc"),
    "length with a space inside": post(b"Content-Length: 3 6\r\n", SMUGGLED),
    "length with an underscore": post(b"Content-Length: 3_6\r\n", SMUGGLED),
    "empty length": post(b"Content-Length:\r\n", SMUGGLED),
    "length beyond 64 bits": post(b"Content-Length: 18446744073709551619\r\n", b"abc"),
    "length and a form feed": post(b"Content-Length: 3\x0c\r\n", b"abc"),
    "space before the colon of a length": post(b"Content-Length : 35\r\n", SMUGGLED),
    "space before the colon of an encoding": post(b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n" + SMUGGLED),
    "tab before the colon": post(b"Transfer-Encoding\t: chunked\r\n", b"0\r\n\r\n" + SMUGGLED),
    "encoding after a vertical tab": post(b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n" + SMUGGLED),
    "encoding before a vertical tab": post(b"Transfer-Encoding: chunked\x0b\r\n", b"0\r\n\r\n" + SMUGGLED),
    "encoding and NUL": post(b"Transfer-Encoding: chunked\0\r\n", b"0\r\n\r\n" + SMUGGLED),
    "unknown encoding": post(b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n" + SMUGGLED),
    "quoted encoding": post(b'Transfer-Encoding: "chunked"\r\n', b"0\r\n\r\n" + SMUGGLED),
    "identity": post(b"Transfer-Encoding: identity\r\nContent-Length: 3\r\n", b"abc"),
    "chunked and identity": post(b"Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n" + SMUGGLED),
    "chunked twice": post(CHUNKED + CHUNKED, b"0\r\n\r\n" + SMUGGLED),
    "chunked and another in two fields": post(CHUNKED + b"Transfer-Encoding: x\r\n", b"0\r\n\r\n" + SMUGGLED),
    "empty encoding": post(b"Transfer-Encoding:\r\n", SMUGGLED),
    "chunked in HTTP/1.0": post(CHUNKED, b"0\r\n\r\n" + SMUGGLED, line=b"POST / HTTP/1.0"),
    "folded encoding": post(b"Transfer-Encoding:\r\n chunked\r\n", b"0\r\n\r\n" + SMUGGLED),
    "folded field": post(b"X: 1\r\n Content-Length: 35\r\n", SMUGGLED),
    "field folded by a tab": post(b"X: 1\r\n\tTransfer-Encoding: chunked\r\n", b"0\r\n\r\n" + SMUGGLED),
    "first field folded": b"POST / HTTP/1.1\r\n Host: b\r\nHost: a\r\n\r\n" + SMUGGLED,
    "LF in a field": post(b"X: 1\nContent-Length: 35\r\n", SMUGGLED),
    "CR in a field": post(b"X: 1\rContent-Length: 35\r\n", SMUGGLED),
    "LF for all ends": b"POST / HTTP/1.1\nHost: a\nContent-Length: 35\n\n" + SMUGGLED,
    "LF for the empty line": b"POST / HTTP/1.1\r\nHost: a\r\n\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
    "CR for the empty line": b"POST / HTTP/1.1\r\nHost: a\r\n\r\rGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
    "NUL in a name": post(b"Content\0-Length: 35\r\n", SMUGGLED),
    "no name": post(b": chunked\r\n", SMUGGLED),
    "no colon": post(b"Content-Length 35\r\n", SMUGGLED),
    "two hosts": post(b"Host: b\r\n"),
    "two equal hosts": post(b"Host: a\r\n"),
    "target of another host": post(b"", line=b"GET http://b/ HTTP/1.1"),
    "target with a user": post(b"", line=b"GET http://b@a/ HTTP/1.1"),
    "two spaces": post(b"", line=b"GET  / HTTP/1.1"),
    "tab in the first line": post(b"", line=b"GET\t/ HTTP/1.1"),
    "words after the version": post(b"", line=b"GET / HTTP/1.1 x"),
    "space at the end": post(b"", line=b"GET / HTTP/1.1 "),
    "HTTP/0.9": b"GET /\r\n\r\n" + SMUGGLED,
    "HTTP/1.10": post(b"", line=b"GET / HTTP/1.10"),
    "upgrade with a body": post(b"Connection: upgrade\r\nUpgrade: x\r\nContent-Length: 35\r\n", SMUGGLED),
}

BAD_CHUNKS = {
    "size with 0x": b"0x3\r\nabc\r\n0\r\n\r\n",
    "size with a sign": b"+3\r\nabc\r\n0\r\n\r\n",
    "negative size": b"-3\r\nabc\r\n0\r\n\r\n",
    "size with an underscore": b"0_3\r\nabc\r\n0\r\n\r\n",
    "size after a space": b" 3\r\nabc\r\n0\r\n\r\n",
    "size before a space": b"3 \r\nabc\r\n0\r\n\r\n",
    "no size": b"\r\nabc\r\n0\r\n\r\n",
    "size beyond 64 bits": b"10000000000000003\r\nabc\r\n0\r\n\r\n",
    "size ends with LF": b"3\nabc\r\n0\r\n\r\n",
    "CR in an extension": b"3;a\rb\r\nabc\r\n0\r\n\r\n",
    "LF in an extension": b"3;a\nxx\r\nabc\r\n0\r\n\r\n",
    "NUL in an extension": b"3;\0\r\nabc\r\n0\r\n\r\n",
    "chunk ends with LF": b"3\r\nabc\n0\r\n\r\n",
    "chunk is longer than it says": b"3\r\nabcd\r\n0\r\n\r\n",
    "last chunk ends with LF": b"3\r\nabc\r\n0\n\n",
    "trailer that frames": b"0\r\nContent-Length: 35\r\n\r\n",
    "trailer that encodes": b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "trailer that names a host": b"0\r\nHost: b\r\n\r\n",
    "trailer of ours": b"0\r\nFly-Client-IP: 6.6.6.6\r\n\r\n",
    "folded trailer": b"0\r\nX: 1\r\n Content-Length: 35\r\n\r\n",
}

PASSED = {
    "one length": (post(b"Content-Length: 35\r\n", SMUGGLED), [("/", SMUGGLED)]),
    "length with zeros before it": (post(b"Content-Length: 0035\r\n", SMUGGLED), [("/", SMUGGLED)]),
    "length between spaces": (post(b"Content-Length: \t35 \r\n", SMUGGLED), [("/", SMUGGLED)]),
    "chunks": (post(CHUNKED, b"23\r\n" + SMUGGLED + b"\r\n0\r\n\r\n"), [("/", SMUGGLED)]),
    "chunked in capitals": (post(b"TRANSFER-ENCODING: Chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n"), [("/", b"abc")]),
    "chunk extensions": (post(CHUNKED, b'3 ;a="\x80"\r\nabc\r\n0;b\r\n\r\n'), [("/", b"abc")]),
    "body of a GET": (post(b"Content-Length: 35\r\n", SMUGGLED, line=b"GET / HTTP/1.1"), [("/", SMUGGLED)]),
    "no length": (post(b"", SMUGGLED), [("/", b""), ("/smuggled", b"")]),
    "after the last chunk": (post(CHUNKED, b"0\r\n\r\n" + SMUGGLED), [("/", b""), ("/smuggled", b"")]),
    "name with an underscore": (post(b"Content_Length: 35\r\n", SMUGGLED), [("/", b""), ("/smuggled", b"")]),
    "length of this connection": (
        post(b"Connection: content-length\r\nContent-Length: 35\r\n", SMUGGLED),
        [("/", SMUGGLED)],
    ),
    "behind a last one": (post(b"Connection: close\r\n", SMUGGLED), [("/", b"")]),
    "behind one of HTTP/1.0": (post(b"", SMUGGLED, line=b"POST / HTTP/1.0"), [("/", b"")]),
    "empty lines before it": (b"\r\n\r\n" + post(b"", b""), [("/", b"")]),
    "absolute target": (post(b"", line=b"GET http://a/x HTTP/1.1"), [("/x", b"")]),
}


class ReadingMachine:
    """What h11 understands of what comes to a machine, on all its connections, in order."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bytes]] = []
        self.errors: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        h11_reader, target, body = h11.Connection(h11.SERVER), "", b""
        while True:
            try:
                event = h11_reader.next_event()
            except h11.RemoteProtocolError as error:
                self.errors.append(str(error))
                return
            if event is h11.NEED_DATA:
                h11_reader.receive_data(await reader.read(65_536))
            elif isinstance(event, h11.Request):
                target, body = event.target.decode(), b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                self.requests.append((target, body))
                writer.write(h11_reader.send(h11.Response(status_code=200, headers=[("Content-Length", "2")])) or b"")
                writer.write(
                    (h11_reader.send(h11.Data(data=b"ok")) or b"") + (h11_reader.send(h11.EndOfMessage()) or b"")
                )
                if h11_reader.our_state is h11.DONE and h11_reader.their_state is h11.DONE:
                    h11_reader.start_next_cycle()
            else:
                return


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has said its last is answered all the same, however busy this host is."""
    monkeypatch.setattr(exchange, "_LEFT_S", 60.0)


async def said(port: int, request: bytes) -> bytes:
    """All that the edge answers to a client that says no more."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(request)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


async def published(host: PlayedHost, inside: int) -> int:
    port = free_port()
    await host.publish(route(port, inside, handlers=("http",)))
    return port


async def test_requests_of_two_readings_are_refused_and_reach_no_machine(host: PlayedHost) -> None:
    machine = ReadingMachine()
    async with app_server(machine) as inside:
        port = await published(host, inside)
        for name, request in REFUSED.items():
            answer = await said(port, request)
            assert answer.startswith(b"HTTP/1.1 400 "), (name, answer)
            assert b"HTTP/1.1 200" not in answer, (name, answer)
            assert (machine.requests, machine.errors) == ([], []), name


@pytest.mark.parametrize("name", BAD_CHUNKS)
async def test_bodies_of_two_readings_end_their_connection_and_are_never_whole(host: PlayedHost, name: str) -> None:
    """The head may have gone on before the body was read: what a machine must not get is the end of it."""
    machine = ReadingMachine()
    async with app_server(machine) as inside:
        port = await published(host, inside)
        answer = await said(port, post(CHUNKED, BAD_CHUNKS[name] + SMUGGLED))
    assert answer.startswith(b"HTTP/1.1 400 ") and b"HTTP/1.1 200" not in answer, answer
    assert machine.requests == []


@pytest.mark.parametrize("name", PASSED)
async def test_requests_that_pass_are_read_alike_by_the_machine(host: PlayedHost, name: str) -> None:
    request, expected = PASSED[name]
    machine = ReadingMachine()
    async with app_server(machine) as inside:
        port = await published(host, inside)
        _, writer = await asyncio.open_connection(HOST, port)
        writer.write(request)
        with anyio.move_on_after(30):
            await eventually(lambda: len(machine.requests) >= len(expected))
        assert (await ask(port, get("/after"))).startswith(b"HTTP/1.1 200")
        writer.close()
    assert (machine.requests, machine.errors) == ([*expected, ("/after", b"")], [])


@pytest.mark.parametrize(
    "answer",
    [
        OK + OK.replace(b"ok", b"no"),
        b"HTTP/1.1 304 Not Modified\r\n\r\n" + OK.replace(b"ok", b"no"),
        b"HTTP/1.1 204 No Content\r\n\r\n" + OK.replace(b"ok", b"no"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + OK.replace(b"ok", b"no"),
    ],
)
async def test_an_answer_that_nobody_asked_for_is_given_to_nobody(host: PlayedHost, answer: bytes) -> None:
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while await reader.readuntil(b"\r\n\r\n"):
            asked += 1
            writer.write(answer if asked == 1 else OK)

    async with app_server(serve) as inside:
        port = await published(host, inside)
        first = await said(port, get("/first"))
        second = await said(port, get("/second"))
    assert first.count(b"HTTP/1.1 ") == 1 and not first.endswith(b"no")
    assert second.endswith(b"\r\n\r\nok") and asked == 2
