"""An API server on a unix socket, as a VMM has one: it holds every request against the description of the API, then
gives it to what plays the VMM. What was asked is kept.
"""

import json
import socketserver
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Protocol

from tests.vmm.document import Document, Violation


@dataclass(frozen=True, slots=True)
class Reply:
    """`body` is what JSON is made of; None for none."""

    status: int
    body: object | None = None


DONE = Reply(204)


class PlayedVmm(Protocol):
    """What a VMM makes of requests that its document allows. One at a time."""

    document: Document
    server: str  # as it names itself
    ended: bool  # after the reply

    def answer(self, operation: str, path: str, body: Any) -> Reply: ...

    def fault(self, status: int, text: str) -> Reply: ...


class VmmServer(socketserver.UnixStreamServer):
    """`seen` has operation, body and status of each request, in order; `on_seen` is told of each."""

    def __init__(self, path: Path, vmm: PlayedVmm, on_seen: Callable[[str, Any, int], None] | None = None) -> None:
        super().__init__(str(path), _Handler)
        self.vmm = vmm
        self.seen: list[tuple[str, Any, int]] = []
        self._on_seen = on_seen

    def decide(self, method: str, path: str, raw: bytes) -> Reply:
        operation, body = f"{method} {path}", None
        try:
            body = json.loads(raw) if raw else None
            operation = self.vmm.document.check(method, path, body)
            reply = self.vmm.answer(operation, path, body)
        except ValueError as error:
            reply = self.vmm.fault(400, f"not JSON: {error}")
        except Violation as error:
            reply = self.vmm.fault(400 if error.known else 404, str(error))
        self.seen.append((operation, body, reply.status))
        if self._on_seen is not None:
            self._on_seen(operation, body, reply.status)
        return reply


class _Handler(BaseHTTPRequestHandler):
    """The heads of its answers are those of the HTTP library that both VMMs share."""

    protocol_version = "HTTP/1.1"
    server: VmmServer

    def handle(self) -> None:
        with suppress(ConnectionError):  # a client that has left is its own affair
            self.handle_one_request()
        if self.server.vmm.ended:
            raise SystemExit(0)

    def _take(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        reply = self.server.decide(self.command, self.path, raw)
        lines = [f"HTTP/1.1 {reply.status} ", f"Server: {self.server.vmm.server}", "Connection: keep-alive"]
        body = b"" if reply.body is None else json.dumps(reply.body).encode()
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        self.wfile.write("\r\n".join((*lines, "", "")).encode() + body)

    do_GET = do_PUT = do_PATCH = do_DELETE = _take

    def log_message(self, format: str, *args: object) -> None:
        """What was asked is kept by the server."""
