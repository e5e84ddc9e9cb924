"""A name server of the world that answers as a test decides, over UDP and TCP at one port of loopback."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from dns import message, rrset

Reply = Callable[[message.Message], message.Message | bytes | None]


def with_address(query: message.Message, ttl: int = 60, address: str = "2001:db8::5") -> message.Message:
    reply = message.make_response(query)
    reply.answer.append(rrset.from_text(query.question[0].name, ttl, "IN", "AAAA", address))
    return reply


class Upstream(asyncio.DatagramProtocol):
    """`reply` says what is answered; None: nothing. `heard` is all that was asked."""

    def __init__(self, reply: Reply = with_address) -> None:
        self.reply = reply
        self.heard: list[message.Message] = []
        self.sources: list[int] = []
        self.port = 0
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.sources.append(address[1])
        found = self._answer(data)
        if found is not None:
            self._transport.sendto(found, address)

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (length,) = struct.unpack("!H", await reader.readexactly(2))
        found = self._answer(await reader.readexactly(length))
        if found is not None:
            writer.write(struct.pack("!H", len(found)) + found)
        writer.close()

    def _answer(self, data: bytes) -> bytes | None:
        query = message.from_wire(data)
        self.heard.append(query)
        found = self.reply(query)
        return found if found is None or isinstance(found, bytes) else found.to_wire(max_size=65_535)


@asynccontextmanager
async def serving(upstream: Upstream) -> AsyncIterator[Upstream]:
    transport, server = await _both(upstream)
    try:
        yield upstream
    finally:
        transport.close()
        server.close()


async def _both(upstream: Upstream) -> tuple[asyncio.BaseTransport, asyncio.Server]:
    """At a port that is free for both; somebody else may take one of them in between."""
    while True:
        server = await asyncio.start_server(upstream.converse, "127.0.0.1", 0)
        upstream.port = int(server.sockets[0].getsockname()[1])
        try:
            made = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: upstream, local_addr=("127.0.0.1", upstream.port)
            )
        except OSError:
            server.close()
            continue
        return made[0], server
