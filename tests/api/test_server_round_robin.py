"""Whoever asks most does not make others wait."""

import anyio
import pytest

from hawker.api.codec import Message
from hawker.api.routes import ROUTES
from hawker.api.server import Server
from hawker.clock import SystemClock
from tests.api.serving import Fake, authenticate

pytestmark = pytest.mark.anyio


async def test_request_of_another_address_comes_in_before_a_crowd_of_one_is_answered() -> None:
    server, answered = Server(Fake().handlers(ROUTES), authenticate, SystemClock()), list[str]()

    async def ask(address: str) -> None:
        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered.append(address)

        path = b"/v1/apps"
        headers = [(b"authorization", b"Bearer token")]
        await server(
            {
                "type": "http", "method": "GET", "path": path.decode(), "raw_path": path, "query_string": b"",
                "headers": headers, "client": (address, 1),
            },
            receive,
            send,
        )  # fmt: skip

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(ask, "10.0.0.1")
        tasks.start_soon(ask, "10.0.0.2")
    assert len(answered) == 101
    assert answered.index("10.0.0.2") < 10
