"""Orders at authorities that are none; at a real one in tests/edge/test_acme.py."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import requests

from hawker.errors import Unavailable
from hawker.feed import HTTP_01
from hawker.ids import AppName
from hawker.secret.acme_order import AcmeOrder, Authority, _wait_of
from tests.certificates import issued, root_pem
from tests.ports import free_port

NAME = "shop.example.com"


@contextmanager
def answering(body: bytes, folder: Path) -> Iterator[Authority]:
    """An HTTPS server that says the same to everybody."""

    class Same(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    chain, key = issued("localhost")
    (folder / "pair.pem").write_text(key + chain)
    (folder / "ca.pem").write_text(root_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "pair.pem")
    with HTTPServer(("127.0.0.1", free_port()), Same) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Authority(f"https://localhost:{server.server_port}/dir", None, folder / "ca.pem", b"k" * 32)
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'"x"', b"null", b'{"newNonce": 1}', b"\xff" * 1000])
def test_an_answer_that_is_no_directory_is_one_typed_error(body: bytes, tmp_path: Path) -> None:
    with answering(body, tmp_path) as authority, pytest.raises(Unavailable) as caught:
        AcmeOrder(authority, NAME, AppName("shop")).begin((HTTP_01,))
    assert 0 < len(str(caught.value)) <= 500


def test_an_authority_that_is_away_or_not_vouched_for_is_said_to_be(tmp_path: Path) -> None:
    with answering(b"{}", tmp_path) as authority:
        stranger = Authority(authority.directory, None, None, authority.key)
        with pytest.raises(Unavailable, match=r"(?i)certificate"):
            AcmeOrder(stranger, NAME, AppName("shop")).begin((HTTP_01,))
    with pytest.raises(Unavailable, match=r"(?i)refused|connect"):
        AcmeOrder(authority, NAME, AppName("shop")).begin((HTTP_01,))
    missing = Authority(authority.directory, None, tmp_path / "none.pem", authority.key)
    with pytest.raises(Unavailable, match=r"none\.pem"):
        AcmeOrder(missing, NAME, AppName("shop")).begin((HTTP_01,))


@pytest.mark.parametrize(
    ("said", "wait_s"),
    [
        ("3", 3.0),
        ("Sun, 29 Nov 2026 20:00:05 GMT", 5.0),
        ("Sun, 29 Nov 2026 19:00:00 GMT", 0.0),
        ("9" * 400, 7 * 86_400.0),
        ("soon", 1.5),
        ("-1", 1.5),
        ("", 1.5),
    ],
)
def test_an_authoritys_wish_to_be_asked_later_is_read_and_bounded(said: str, wait_s: float) -> None:
    answer = requests.Response()
    answer.headers.update({"Retry-After": said, "Date": "Sun, 29 Nov 2026 20:00:00 GMT"})
    assert _wait_of(answer, unsaid_s=1.5) == wait_s
