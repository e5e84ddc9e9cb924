"""A node as a client without a library sees it: the bytes that it sends, and the status, headers and JSON that come."""

import http.client
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tests.e2e.running_node import RunningNode
from tests.waiting import wait_for

_TIMEOUT_S = 75.0  # a call that waits takes a minute at most


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.data)


@dataclass(frozen=True, slots=True)
class Wire:
    host: str
    port: int
    token: str

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=_TIMEOUT_S)

    @contextmanager
    def socket(self) -> Iterator[socket.socket]:
        with socket.create_connection((self.host, self.port), timeout=_TIMEOUT_S) as opened:
            yield opened

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """On a connection of its own. A header given here replaces ours."""
        connection = self.connect()
        ours = {"Authorization": f"Bearer {self.token}"}
        try:
            return exchange(connection, method, path, body, ours | dict(headers or {}))
        finally:
            connection.close()

    def ask(self, method: str, path: str, body: object = None, *, status: int = 200, **headers: str) -> Any:
        """The JSON that is answered with the status; None for nothing. Headers as `fly_machine_lease_nonce="..."`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.send(method, path, None if body is None else msgspec.json.encode(body), named)
        assert answer.status == status, answer
        return answer.json if answer.data else None

    def waits(self, machine: str, state: str) -> None:
        """Until the machine at this path is in the state. One call waits for a minute at most: it is repeated."""

        def is_there() -> bool:
            said = self.send("GET", f"{machine}/wait?state={state}&timeout=60")
            assert said.status in (200, 408), said
            return said.status == 200

        wait_for(is_there)


def wire_to(node: RunningNode) -> Wire:
    parts = urlsplit(node.url)
    return Wire(str(parts.hostname), parts.port or 0, node.token)


def exchange(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
) -> Answer:
    kind = {} if body is None else {"Content-Type": "application/json"}
    connection.request(method, path, body, {**kind, **headers})
    answer = connection.getresponse()
    found = {name.lower(): value for name, value in answer.getheaders()}
    return Answer(answer.status, found, answer.read())
