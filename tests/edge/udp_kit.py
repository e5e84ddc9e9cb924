"""What tests of datagrams play: machines with a program that answers, and clients."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from typing import cast

import anyio
from msgspec.structs import replace

from hawker.feed import MachineRoute
from tests.edge.edge_kit import HOST, route


def udp_route(port: int, internal: int, **rest: object) -> MachineRoute:
    machine = route(port, internal, **rest)  # type: ignore[arg-type]
    return replace(machine, services=tuple(replace(each, protocol="udp") for each in machine.services))


class App(asyncio.DatagramProtocol):
    """A program in a machine that answers each datagram with its own name before it, but those that say what it
    `ignores`, whenever it comes to hear them."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.heard: list[bytes] = []
        self.ignores: bytes | None = None
        self.transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        self.heard.append(data)
        if data != self.ignores and self.transport is not None:
            self.transport.sendto(self.name + b" " + data, address)


@asynccontextmanager
async def udp_app(name: bytes = b"got", port: int = 0) -> AsyncIterator[tuple[int, App]]:
    loop = asyncio.get_running_loop()
    transport, app = await loop.create_datagram_endpoint(partial(App, name), local_addr=(HOST, port))
    with closing(transport):
        yield int(transport.get_extra_info("sockname")[1]), app


@contextmanager
def client(port: int) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.connect((HOST, port))
        yield sender


async def ask(sender: socket.socket, data: bytes) -> bytes:
    """The answer; asked again now and then, as clients of UDP do, who so may get it twice: what came late of an
    earlier one is passed over."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while True:
            sender.recv(65_535)
    for _ in range(20):
        sender.send(data)
        with anyio.move_on_after(3):
            while not (answer := await loop.sock_recv(sender, 65_535)).endswith(b" " + data):
                pass
            return answer
    raise AssertionError("no answer came")
