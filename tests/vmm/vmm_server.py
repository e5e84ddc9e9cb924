"""An API server on a unix socket, as a VMM has one: it holds every request against the description of the API, then
gives it to what plays the VMM. What was asked is kept.
"""

import json
import socketserver
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.vmm.document import Document, Violation
from tests.vmm.guests import Guest


@dataclass(frozen=True, slots=True)
class Reply:
    """`body` is what JSON is made of; None for none."""

    status: int
    body: object | None = None


DONE = Reply(204)


class Refused(Exception):
    """What a played VMM does not do, and why."""

    def __init__(self, why: str, *, what: str = "", status: int = 500) -> None:
        super().__init__(why)
        self.what = what
        self.status = status


class PlayedVmm(ABC):
    """What a VMM makes of requests that its document allows. One at a time."""

    document: Document
    server: str  # as it names itself

    def __init__(self, guest: Guest, version: str) -> None:
        self.ended = False  # after the reply
        self.version = version
        self.state: str | None = None
        self._guest = guest

    def answer(self, operation: str, path: str, body: Any) -> Reply:
        try:
            return self._do(operation, path, body)
        except Refused as error:
            return self._refusal(operation, error, error)
        except OSError as error:
            return self._refusal(operation, error, None)

    @abstractmethod
    def fault(self, status: int, text: str) -> Reply:
        """The answer to a request that its document does not allow."""

    @abstractmethod
    def _do(self, operation: str, path: str, body: Any) -> Reply:
        """Raises `Refused` and `OSError`."""

    @abstractmethod
    def _refusal(self, operation: str, error: Exception, refused: Refused | None) -> Reply:
        """The answer to what failed; `refused` is the error where the VMM says what it was."""

    def _hold(self, after: str) -> None:
        """`after` is the state that it then has: Paused or Running."""
        self._guest.hold() if after == "Paused" else self._guest.go_on()
        self.state = after


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
