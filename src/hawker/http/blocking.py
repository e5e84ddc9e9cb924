"""One GET over a connection of its own, without an event loop: for a command that answers before one is loaded."""

import socket
from collections.abc import Mapping

import httptools

from hawker.http.message import (
    MAX_ANSWER_BYTES,
    AnswerTooLong,
    HttpOrigin,
    HttpResponse,
    ResponseParser,
    encode_request,
)

_PIECE = 1 << 18


def get(origin: HttpOrigin, target: str, headers: Mapping[str, str], patience_s: float) -> HttpResponse | None:
    """The response, whatever its status. None when no response came: nobody listens, `patience_s` seconds passed
    without a byte, the connection was lost, or the bytes were no HTTP or too many. Over plain HTTP only. Raises
    `BadRequest` for a header with a line break in it."""
    assert not origin.tls
    request = encode_request("GET", target, [("host", origin.authority), ("connection", "close"), *headers.items()])
    try:
        with socket.create_connection((origin.host, origin.port), patience_s) as connection:
            connection.sendall(request)
            return _read(connection)
    except (OSError, UnicodeError, httptools.HttpParserError):
        return None


def _read(connection: socket.socket) -> HttpResponse | None:
    whole: list[HttpResponse] = []
    parser = ResponseParser(lambda response, goes_on: whole.append(response))
    received_bytes = 0
    while not whole:
        piece = connection.recv(_PIECE)
        if not piece:
            parser.end()
            break
        received_bytes += len(piece)
        if received_bytes > MAX_ANSWER_BYTES:
            raise AnswerTooLong(MAX_ANSWER_BYTES)
        parser.feed(piece)
    return whole[0] if whole else None
