"""What is packed, for whom, and that it can be unpacked as it comes."""

import gzip
import zlib

import pytest
import zstandard

from hawker.config.machine import HttpOptions
from hawker.edge.compression import GzipPacker, ZstdPacker, packed, wanted
from hawker.edge.head import parse_response
from tests.edge.edge_kit import PlayedHost, app_server, ask, get, route, says
from tests.ports import free_port

TEXT = b"to be or not to be " * 200
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"
WHOLE = HEAD + b"Content-Length: 5000\r\n\r\n"


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip;q=1, zstd;q=0.5", "gzip"),
        ("GZIP;q=0.001", "gzip"),
        ("*", "zstd"),
        ("*;q=0, gzip", "gzip"),
        ("gzip;q=0", None),
        ("br, deflate, identity", None),
        ("gzip;q=2", None),
        ("", None),
        ("," * 5000 + "gzip", None),
        ("gzip" + " " * 16_000, "gzip"),
        ("gzip" + " " * 16_000 + "x, br", None),
        ("gzip ; q = 0.5 , zstd ; q=0", "gzip"),
    ],
)
def test_the_coding_that_a_client_wants_most_is_taken(accepted: str, coding: str | None) -> None:
    assert wanted([accepted.encode()]) == coding


@pytest.mark.parametrize(
    ("head", "is_packed"),
    [
        (WHOLE, True),
        (HEAD + b"Content-Length: 1023\r\n\r\n", False),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", True),
        (HEAD + b"Content-Encoding: br\r\n\r\n", False),
        (HEAD + b"Content-Range: bytes 0-1/2\r\n\r\n", False),
        (HEAD + b"Cache-Control: public, no-transform\r\n\r\n", False),
        (HEAD.replace(b"200", b"206") + b"\r\n", False),
        (HEAD.replace(b"200", b"304") + b"\r\n", False),
        (HEAD.replace(b"text/html", b"text/event-stream") + b"\r\n", False),
        (HEAD.replace(b"text/html", b"image/png") + b"\r\n", False),
        (HEAD.replace(b"text/html", b"application/grpc") + b"\r\n", False),
        (HEAD.replace(b"text/html", b"application/vnd.api+json") + b"\r\n", True),
        (HEAD.replace(b"text/html", b"IMAGE/SVG+XML") + b"\r\n", True),
        (b"HTTP/1.1 200 OK\r\n\r\n", False),
    ],
)
def test_text_is_packed_and_nothing_that_must_stay_as_it_is(head: bytes, is_packed: bool) -> None:
    answer = parse_response(head, b"GET")
    shown, packer = packed(answer, [(b"accept-encoding", b"gzip")])
    assert (packer is not None) is is_packed and (shown is answer) is not is_packed
    assert packed(parse_response(WHOLE, b"HEAD"), [(b"accept-encoding", b"gzip")])[1] is None
    assert packed(answer, [])[1] is None


def test_a_packed_body_can_be_unpacked_as_it_comes() -> None:
    unzip, unpack = zlib.decompressobj(31), zstandard.ZstdDecompressor().decompressobj()
    for packer, unpacker in ((GzipPacker(), unzip), (ZstdPacker(), unpack)):
        for number in range(3):
            piece = b"piece %d " % number * 100
            assert unpacker.decompress(packer.pack(piece)) == piece
        assert unpacker.decompress(packer.end()) == b""


async def test_clients_get_packed_answers_where_the_config_says_so(host: PlayedHost) -> None:
    fields = b'ETag: "x"\r\nAccept-Ranges: bytes\r\nContent-Length: %d\r\n\r\n' % len(TEXT)
    async with app_server(says(HEAD + fields + TEXT)) as inside:
        port, plain = free_port(), free_port()
        await host.publish(
            route(port, inside, handlers=("http",), options=HttpOptions(compress=True)),
            route(plain, inside, app="plain", handlers=("http",)),
        )
        answer = await ask(port, get("/", "Accept-Encoding: gzip"))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"content-encoding: gzip" in head and b"vary: accept-encoding" in head and b'etag: W/"x"' in head
        assert b"content-length" not in head and b"accept-ranges" not in head and b"chunked" in head
        pieces = b"".join(part for number, part in enumerate(_chunks(body)) if number % 2)
        assert gzip.decompress(pieces) == TEXT and len(pieces) < len(TEXT) // 4
        assert (await ask(port, get())).endswith(TEXT)
        assert (await ask(plain, get("/", "Accept-Encoding: gzip", host="plain"))).endswith(TEXT)


def _chunks(body: bytes) -> list[bytes]:
    """Sizes and contents in turn."""
    found: list[bytes] = []
    while body:
        size, _, body = body.partition(b"\r\n")
        found += [size, body[: int(size, 16)]]
        body = body[int(size, 16) + 2 :]
    return found
