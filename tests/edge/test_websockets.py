"""WebSockets through a real edge, beside the same without it: whatever a client says, in however small pieces, a strict
server of others (`websockets`) answers the same bytes. The talks are after the headings of the Autobahn suite, which
itself runs on Python 2 only.
"""

import asyncio
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress

import anyio
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from tests.edge.edge_kit import HOST, PlayedHost, route
from tests.ports import free_port

CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MASK = b"\x37\xfa\x21\x3d"
WITHIN_S = 60.0
BYTE_BY_BYTE = 1
UTF8 = "Hello-µ@ßöäüàá-κόσμε-𐍈".encode()
DEFLATED = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"

Talk = tuple[bytes, ...]
"""What a client writes, one after the other."""


def frame(opcode: int, data: bytes = b"", *, last: bool = True, reserved: int = 0, masked: bool = True) -> bytes:
    first = last << 7 | reserved << 4 | opcode
    if len(data) < 126:
        length = bytes((masked << 7 | len(data),))
    elif len(data) < 1 << 16:
        length = bytes((masked << 7 | 126,)) + len(data).to_bytes(2, "big")
    else:
        length = bytes((masked << 7 | 127,)) + len(data).to_bytes(8, "big")
    if not masked:
        return bytes((first,)) + length + data
    pattern = (MASK * (len(data) // 4 + 1))[: len(data)]
    hidden = int.from_bytes(data, "big") ^ int.from_bytes(pattern, "big")
    return bytes((first,)) + length + MASK + hidden.to_bytes(len(data), "big")


def closing(code: int | None = 1000, reason: bytes = b"") -> bytes:
    return frame(CLOSE, b"" if code is None else code.to_bytes(2, "big") + reason)


def parts(opcode: int, data: bytes, size: int) -> Iterator[bytes]:
    """A message in frames of so many bytes."""
    for start in range(0, len(data), size):
        yield frame(opcode if not start else CONTINUED, data[start : start + size], last=start + size >= len(data))


def pieces(data: bytes, size: int) -> Talk:
    return tuple(data[start : start + size] for start in range(0, len(data), size))


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return (packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]


LENGTHS = (0, 1, 125, 126, 127, 128, 65_535, 65_536)
TALKS: dict[str, list[Talk]] = {
    "framing": [(frame(kind, b"*" * length), closing()) for kind in (TEXT, BINARY) for length in LENGTHS]
    + [pieces(frame(BINARY, b"\xfe" * 300) + closing(), size) for size in (BYTE_BY_BYTE, 2, 997)],
    "pings": [
        (frame(PING), closing()),
        (frame(PING, b"\xfe" * 125), closing()),
        (frame(PING, b"\xfe" * 126), closing()),
        pieces(frame(PING, b"payload") + closing(), BYTE_BY_BYTE),
        (frame(PONG), frame(PONG, b"unasked"), frame(PING, b"asked"), closing()),
        (*(frame(PING, b"payload-%d" % number) for number in range(10)), closing()),
        (frame(PING, last=False), closing()),
    ],
    "reserved bits": [
        (frame(TEXT, b"Hello"), frame(kind, b"Hello", reserved=bits), frame(PING), closing())
        for bits in range(1, 8)
        for kind in (TEXT, CLOSE)
    ],
    "opcodes": [
        (frame(TEXT, b"Hello"), frame(opcode, data), frame(PING), closing())
        for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)
        for data in (b"", b"payload")
    ],
    "fragments": [
        (*parts(TEXT, b"fragment1fragment2", 9), closing()),
        (frame(TEXT, b"one", last=False), frame(PING, b"between"), frame(CONTINUED, b"two"), closing()),
        (frame(CONTINUED, b"of nothing"), closing()),
        (frame(CONTINUED, b"of nothing", last=False), frame(TEXT, b"Hello"), closing()),
        (frame(TEXT, b"one", last=False), frame(TEXT, b"another"), closing()),
        pieces(b"".join(parts(TEXT, UTF8, 1)) + closing(), BYTE_BY_BYTE),
        (frame(TEXT, b"never ended", last=False), closing()),
    ],
    "text": [
        (frame(TEXT, UTF8), closing()),
        *((*parts(TEXT, UTF8, size), closing()) for size in (1, 2, 3)),
        *(
            (frame(TEXT, b"good " + bad), closing())
            for bad in (b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff", b"\xce", b"\xf8\x88\x80\x80\x80")
        ),
        (frame(TEXT, b"good", last=False), frame(CONTINUED, b"\xff bad", last=False), frame(CONTINUED), closing()),
    ],
    "endings": [
        (closing(None),),
        (frame(CLOSE, b"\x03"),),
        *((closing(code),) for code in (1000, 1001, 1002, 1003, 1007, 1008, 1011, 3000, 3999, 4000, 4999)),
        *((closing(code),) for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535)),
        (closing(reason=b"*" * 123),),
        (closing(reason=b"*" * 124),),
        (closing(reason=b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80"),),
        (closing(), frame(TEXT, b"after the end"), closing()),
        (frame(TEXT, b"unmasked", masked=False), closing()),
        (b"\x81\xff" + b"\xff" * 8 + MASK,),  # of more bytes than there are
        (b"GET / HTTP/1.1\r\n\r\n",),
    ],
    "limits": [
        (frame(BINARY, bytes(1 << 20)), closing()),
        (*parts(BINARY, os.urandom(1 << 18), 1 << 12), closing()),
        (*pieces(frame(BINARY, bytes(1 << 18)), 1 << 10), closing()),
        (*(frame(TEXT, b"*" * 64) for _ in range(500)), closing()),
    ],
    "compression": [
        (frame(TEXT, deflated(b"Hello " * 1000), reserved=4), closing()),
        (*(frame(TEXT, deflated(b"Hello " * number), reserved=4) for number in range(1, 50)), closing()),
        pieces(frame(BINARY, deflated(UTF8 * 20), reserved=4) + closing(), BYTE_BY_BYTE),
        (frame(BINARY, b"this is not deflated", reserved=4), closing()),
        (frame(TEXT, b"as it is"), closing()),
    ],
}


async def echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


async def answered(port: int, talk: Talk, extensions: bytes = b"") -> tuple[bytes, bytes]:
    """What of the head is the protocol's, and all bytes after it."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(
        b"GET /chat HTTP/1.1\r\nHost: shop.localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" + extensions + b"\r\n"
    )
    head = await reader.readuntil(b"\r\n\r\n")
    status, *fields = head.rstrip().split(b"\r\n")
    ours = sorted(field.lower() for field in fields if field.lower().startswith(b"sec-websocket"))

    async def say() -> None:
        with suppress(OSError):  # the server had enough
            for piece in talk:
                writer.write(piece)
                await writer.drain()
                await anyio.lowlevel.checkpoint()

    said = b""
    async with anyio.create_task_group() as group:
        group.start_soon(say)
        with suppress(ConnectionError):
            while more := await reader.read(1 << 16):
                said += more
    writer.close()
    return b"\n".join((status, *ours)), said


@pytest.mark.parametrize("heading", list(TALKS))
async def test_a_server_answers_through_the_edge_what_it_answers_without_it(host: PlayedHost, heading: str) -> None:
    async with serve(echo, HOST, 0, max_size=1 << 22, ping_interval=None, close_timeout=WITHIN_S) as server:
        direct = next(iter(server.sockets)).getsockname()[1]
        through = free_port()
        await host.publish(route(through, direct, handlers=("http",)))
        for number, talk in enumerate(TALKS[heading]):
            extensions = DEFLATED if heading == "compression" else b""
            with anyio.fail_after(WITHIN_S):
                expected = await answered(direct, talk, extensions)
                found = await answered(through, talk, extensions)
            assert expected[0].startswith(b"HTTP/1.1 101 ") and expected[1], (heading, number)
            assert found == expected, f"{heading}, talk {number}"


async def test_a_client_of_others_talks_through_the_edge(host: PlayedHost) -> None:
    """Both ends are theirs: compression is agreed on, pings are answered, and the code of the end arrives."""
    async with serve(echo, HOST, 0, max_size=1 << 23) as server:
        port = free_port()
        await host.publish(route(port, next(iter(server.sockets)).getsockname()[1], handlers=("http",)))
        large = os.urandom(1 << 22)
        async with connect(f"ws://{HOST}:{port}/chat", max_size=1 << 23, proxy=None) as client:
            assert "permessage-deflate" in client.response.headers["Sec-WebSocket-Extensions"]  # type: ignore[union-attr]
            await (await client.ping())
            for message in ("", "Hello", UTF8.decode() * 1000, b"\0" * 100_000, large):
                await client.send(message)
                assert await client.recv() == message
            await client.close(4321, "enough")
        assert (client.close_code, client.close_reason) == (4321, "enough")
