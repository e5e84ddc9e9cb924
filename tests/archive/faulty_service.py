"""An S3 service that fails as it is told: it answers 500 or 503, hangs up, loses what it was sent, is silent, answers a
byte at a time, or cuts what it answers. What it does not fail, a sound one does.
"""

import http.client
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from tests.archive.s3_server import S3Server
from tests.certificates import issued

_DRIP_S = 0.1
_BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class FaultyService(ThreadingHTTPServer):
    """`fault` befalls every `every`th call of these `methods`; `every` 0 is none."""

    daemon_threads = True

    def __init__(self, sound: S3Server) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.sound = urlsplit(sound.url).netloc
        self.fault, self.every = "", 0
        self.methods: tuple[str, ...] = ("PUT",)
        self.calls = count(1)
        self.faults = 0
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def befalls(self, method: str) -> str:
        hit = method in self.methods and self.every and next(self.calls) % self.every == 0
        self.faults += bool(hit)
        return self.fault if hit else ""

    def handle_error(self, *_: object) -> None:
        """Whoever called has hung up."""


@contextmanager
def faulty_service(sound: S3Server) -> Iterator[FaultyService]:
    with FaultyService(sound) as service:
        thread = threading.Thread(target=service.serve_forever, args=(0.05,))
        thread.start()
        yield service
        service.over.set()
        service.shutdown()
        thread.join()


@contextmanager
def strangers_service(sound: S3Server, below: Path) -> Iterator[str]:
    """The address of one over TLS, with a certificate of an authority that nobody knows."""
    chain, key = below / "chain.pem", below / "key.pem"
    for file, text in zip((chain, key), issued("127.0.0.1"), strict=True):
        file.write_text(text)
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(chain, key)
    with faulty_service(sound) as service:
        service.socket = shown.wrap_socket(service.socket, server_side=True)
        yield service.url.replace("http:", "https:")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyService

    def _hand_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.befalls(self.command)
        if fault == "500":
            return self._answer(500, [], b"")
        if fault == "503":
            return self._answer(503, [], _BUSY)
        if fault == "silent":
            self.server.over.wait()
        if fault in ("silent", "hangs up before"):
            self.close_connection = True
            return None
        if fault == "loses":
            return self._answer(200, [("ETag", '"0"')], b"")
        connection = http.client.HTTPConnection(self.server.sound, timeout=30)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        connection.request(self.command, self.path, body, {**headers, "Host": self.server.sound})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        if fault == "hangs up after":
            self.close_connection = True
            return None
        return self._answer(answer.status, answer.getheaders(), data, fault)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _hand_on

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, fault: str = "") -> None:
        self.send_response(status)
        own = {"connection", "date", "server", "transfer-encoding"}
        length = [value for name, value in headers if name.lower() == "content-length"]
        for name, value in headers:
            if name.lower() not in own | {"content-length"}:
                self.send_header(name, value)
        self.send_header("Content-Length", length[0] if length and self.command == "HEAD" else str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self._write(data, fault)

    def _write(self, data: bytes, fault: str) -> None:
        if fault == "cuts":
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
        elif fault == "drips":
            with suppress(OSError):
                for at in range(len(data)):
                    self.wfile.write(data[at : at + 1])
                    self.server.over.wait(_DRIP_S)
        else:
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        return None
