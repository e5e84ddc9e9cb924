"""A fake node behind real HTTP in a thread of its own, and the command line to talk to it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from anyio.from_thread import start_blocking_portal

from hawker.api.grant import Everything, Grant
from hawker.api.listener import bind, serving
from hawker.api.server import Server
from hawker.cli.main import main
from hawker.clock import SystemClock
from hawker.errors import Unauthorized
from tests.cli.fake_node import TOKEN, FakeNode


@dataclass(frozen=True, slots=True)
class Said:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str


Hawker = Callable[..., Said]


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


async def _authenticate(header: str | None, source: str) -> Grant:
    if header != f"Bearer {TOKEN}":
        raise Unauthorized("unauthorized")
    return Everything("tester")


@pytest.fixture
def url(node: FakeNode) -> Iterator[str]:
    async def make() -> Server:
        return Server(node.handlers(), _authenticate, SystemClock())

    with start_blocking_portal() as portal:
        server = portal.call(make)
        with portal.wrap_async_context_manager(serving(server, bind("127.0.0.1", 0))) as address:
            yield address


@pytest.fixture
def hawker(url: str, capfd: pytest.CaptureFixture[str]) -> Hawker:
    """Runs the command line as `hawker("machine", "list")`."""

    def run(*words: str) -> Said:
        status = main(["--url", url, "--token", TOKEN, *words])
        out, err = capfd.readouterr()
        return Said(status, out, err)

    return run
