"""Against a server that answers as it is told, whatever it is asked."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from hawker.errors import BadRequest
from hawker.http.blocking import get
from hawker.http.message import HttpOrigin, HttpResponse, origin_of
from tests.ports import free_port

_FINE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\nA: b\r\n\r\nfine"
_PATIENCE_S = 20.0


@contextmanager
def _answering(answer: bytes, heard: list[bytes]) -> Iterator[HttpOrigin]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                heard.append(connection.recv(4096))
                connection.sendall(answer)

        thread = Thread(target=serve)
        thread.start()
        origin = origin_of(f"http://127.0.0.1:{listener.getsockname()[1]}/base")
        assert origin is not None
        yield origin
        thread.join(_PATIENCE_S)


def test_response_is_read_whole_whatever_its_status() -> None:
    heard: list[bytes] = []
    with _answering(_FINE, heard) as origin:
        response = get(origin, "/base/a?b=c", {"authorization": "Bearer t"}, _PATIENCE_S)
    assert response == HttpResponse(404, {"content-length": "4", "a": "b"}, b"fine")
    lines = heard[0].decode().split("\r\n")
    assert lines[0] == "GET /base/a?b=c HTTP/1.1"
    assert {"authorization: Bearer t", "connection: close", f"host: {origin.authority}"} <= set(lines)


@pytest.mark.parametrize("answer", [b"", _FINE[:-1], b"SSH-2.0-OpenSSH\r\n"])
def test_broken_response_is_none(answer: bytes) -> None:
    with _answering(answer, []) as origin:
        assert get(origin, "/", {}, _PATIENCE_S) is None


def test_nobody_who_listens_is_none() -> None:
    origin = origin_of(f"http://127.0.0.1:{free_port()}")
    assert origin is not None
    assert get(origin, "/", {}, _PATIENCE_S) is None


def test_header_with_a_line_break_is_refused() -> None:
    origin = origin_of("http://127.0.0.1:1")
    assert origin is not None
    with pytest.raises(BadRequest):
        get(origin, "/", {"authorization": "Bearer a\r\nx: y"}, _PATIENCE_S)
