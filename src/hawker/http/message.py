"""HTTP/1.1 as bytes: a server's address, a request that is written, a response that is parsed. No I/O."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httptools

from hawker.errors import BadRequest
from hawker.value_object import ValueObject

if TYPE_CHECKING:
    import ssl

MAX_HEAD_BYTES = 64 * 1024
MAX_ANSWER_BYTES = 256 * 1024 * 1024
_LENGTHS = frozenset({"content-length", "transfer-encoding"})
_PORTS = {"http": 80, "https": 443}


class AnswerTooLong(httptools.HttpParserError):
    """A response has more bytes, its head included, than the caller takes."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the answer has more than {most} bytes")


CERTIFIED = "hawker.node"
"""A key of the ASGI scope: its value is the node whose certificate was shown and taken; empty where no certificate was
asked for."""


class HttpOrigin(ValueObject, frozen=True):
    """A server's scheme, host and port. URLs of this origin begin with `prefix`; the header `Host` says `authority`."""

    host: str
    """The host that is connected to; an IPv6 address is without brackets."""
    port: int
    """The port, 1 to 65535; that of the scheme where the URL has none."""
    tls: bool
    """Whether the scheme is `https`."""
    prefix: str
    authority: str


class OriginTls(ValueObject, frozen=True):
    """TLS to an origin with settings of its own, in place of the usual ones. `context` is asked for each connection,
    and may raise `OSError`; `name` is the name that the certificate must have."""

    context: "Callable[[], ssl.SSLContext]"
    name: str


def origin_of(url: str) -> HttpOrigin | None:
    """The origin of an `http` or `https` URL; None for anything else. A user and password in it are not sent."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname or parts.port == 0:
            return None
        port = parts.port or _PORTS[parts.scheme]
        prefix, authority = f"{parts.scheme}://{parts.netloc}", parts.netloc.rpartition("@")[2]
        return HttpOrigin(parts.hostname, port, parts.scheme == "https", prefix, authority)
    except ValueError:
        return None


class HttpResponse(ValueObject, frozen=True):
    """A response to a request. `headers` are by their names in lower case."""

    status: int
    """The status code, 100 to 599."""
    headers: dict[str, str]
    body: bytes
    """The whole body, as it was sent."""


def encode_request(method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes = b"") -> bytes:
    """The bytes of a request. `headers` must name the host and the body's length, too. Raises `BadRequest` where a
    value has a line break or a zero byte in it."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
    text, breaks = "\r\n".join(lines), len(lines) - 1
    if text.count("\r") != breaks or text.count("\n") != breaks or "\0" in text:
        raise BadRequest("neither the address nor a token, nonce or key may have a line break in it")
    return text.encode() + body


class ResponseParser:
    """Reads responses from the bytes of one connection. `on_response` is called with each response that is whole, and
    with whether the connection may carry another. httptools calls the methods that begin with `on_`."""

    def __init__(self, on_response: Callable[[HttpResponse, bool], None]) -> None:
        self._on_response = on_response
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._pieces: list[bytes] = []
        self._in_body = False

    def feed(self, data: bytes) -> None:
        """Read the next bytes. Raises `HttpParserError` for bytes that are no HTTP."""
        self._parser.feed_data(data)

    def end(self) -> None:
        """Note that no more bytes come. A response that says no length ends with its connection."""
        if self._in_body and not self._headers.keys() & _LENGTHS:
            self._complete(goes_on=False)

    def on_message_begin(self) -> None:
        self._headers, self._pieces = {}, []
        self._head_bytes = 0
        self._in_body = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Raises `ValueError` for a head that is too long, which the parser turns into an error of its own."""
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES:
            raise ValueError("the head of the answer is too long")
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._in_body = True

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        self._in_body = False
        if self._parser.get_status_code() >= 200:  # others only say that an answer will come
            self._complete(goes_on=self._parser.should_keep_alive())

    def _complete(self, *, goes_on: bool) -> None:
        response = HttpResponse(self._parser.get_status_code(), self._headers, b"".join(self._pieces))
        self._headers, self._pieces, self._in_body = {}, [], False
        self._on_response(response, goes_on)
