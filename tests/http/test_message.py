"""What is written, and what is read of it; `test_transport` has the forms that a response may have."""

import httptools
import pytest

from hawker.errors import BadRequest
from hawker.http.message import HttpResponse, ResponseParser, encode_request, origin_of


def test_request_is_a_line_headers_and_a_body() -> None:
    assert encode_request("POST", "/a?b", [("host", "c"), ("content-length", "2")], b"{}") == (
        b"POST /a?b HTTP/1.1\r\nhost: c\r\ncontent-length: 2\r\n\r\n{}"
    )
    assert encode_request("GET", "/", []) == b"GET / HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("value", ["a\r\nhost: b", "a\nb", "a\rb", "a\0b", "a\r\n\r\n"])
def test_no_value_begins_a_line_of_its_own(value: str) -> None:
    with pytest.raises(BadRequest, match="line break"):
        encode_request("GET", "/", [("x", value)])
    with pytest.raises(BadRequest, match="line break"):
        encode_request("GET", f"/{value}", [])


@pytest.mark.parametrize("url", ["", "ftp://a", "http://", "http://a:0", "http://a:x", "unix:/x", "http://[::1"])
def test_url_that_is_no_http_has_no_origin(url: str) -> None:
    assert origin_of(url) is None


@pytest.mark.parametrize(
    ("url", "host", "port", "tls", "prefix", "authority"),
    [
        ("http://a/b", "a", 80, False, "http://a", "a"),
        ("https://a", "a", 443, True, "https://a", "a"),
        ("http://me:secret@a:81/b", "a", 81, False, "http://me:secret@a:81", "a:81"),
        ("http://[::1]:81", "::1", 81, False, "http://[::1]:81", "[::1]:81"),
    ],
)
def test_origin_of_a_url(url: str, host: str, port: int, tls: bool, prefix: str, authority: str) -> None:
    origin = origin_of(url)
    assert origin is not None
    assert (origin.host, origin.port, origin.tls) == (host, port, tls)
    assert (origin.prefix, origin.authority) == (prefix, authority)


def _parsed(*pieces: bytes) -> list[tuple[HttpResponse, bool]]:
    whole: list[tuple[HttpResponse, bool]] = []
    parser = ResponseParser(lambda response, goes_on: whole.append((response, goes_on)))
    for piece in pieces:
        parser.feed(piece)
    parser.end()
    return whole


def test_response_in_pieces_is_one_response() -> None:
    (response, goes_on), *more = _parsed(b"HTTP/1.1 200 OK\r\nX-A: b\r\nContent-", b"Length: 4\r\n\r\nfi", b"ne")
    assert (response, goes_on, more) == (HttpResponse(200, {"x-a": "b", "content-length": "4"}, b"fine"), True, [])


def test_response_without_a_length_is_whole_when_the_bytes_end() -> None:
    assert [response.body for response, _ in _parsed(b"HTTP/1.1 200 OK\r\n\r\nhalf a ", b"word")] == [b"half a word"]
    assert _parsed(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfi") == []


def test_head_that_is_too_long_is_no_http() -> None:
    with pytest.raises(httptools.HttpParserError):
        _parsed(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n")
