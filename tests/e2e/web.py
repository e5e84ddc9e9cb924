"""Requests from the host to a machine, over its private address."""

import http.client
from dataclasses import dataclass

from tests.waiting import wait_for

TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Page:
    status: int
    body: str


def ask(address: str, path: str = "/", *, port: int = 8080, method: str = "GET") -> Page:
    """Raises `OSError` when nothing answers."""
    connection = http.client.HTTPConnection(address, port, timeout=TIMEOUT_S)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return Page(answer.status, answer.read().decode())
    finally:
        connection.close()


def told(address: str, path: str, *, method: str = "GET") -> Page:
    """As `ask`, of a server that may have begun a moment ago: once it listens."""
    wait_for(lambda: answers(address))
    return ask(address, path, method=method)


def answers(address: str, port: int = 8080) -> bool:
    try:
        return ask(address, port=port).status < 500
    except (OSError, http.client.HTTPException):
        return False
