"""Python and its event loop alone: passes the bytes of each connection to one of its own, and reads no request. What a
proxy in Python cannot go below.

    python bench/peers/forwarder.py PORT TARGET_PORT
"""

import asyncio
import sys
from typing import cast

import uvloop

HOST = "127.0.0.1"


class Target(asyncio.Protocol):
    def __init__(self, client: "Client") -> None:
        self._client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._client.joined(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        if not self._client.transport.is_closing():
            self._client.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._client.transport.close()


class Client(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._target: asyncio.Transport | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        loop = asyncio.get_running_loop()
        self._dial = loop.create_task(loop.create_connection(lambda: Target(self), HOST, self._target_port))

    def joined(self, target: asyncio.Transport) -> None:
        self._target = target
        target.writelines(self._early)

    def data_received(self, data: bytes) -> None:
        if self._target is None:
            self._early.append(data)
        else:
            self._target.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._target is not None:
            self._target.close()


async def main(port: int, target_port: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Client(target_port), HOST, port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(*map(int, sys.argv[1:])))
