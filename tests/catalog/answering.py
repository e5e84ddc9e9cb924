"""A server that is no agent, or a bad one: it says to everybody what it is told to, byte by byte."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketAttribute, SocketStream


@asynccontextmanager
async def answering(*parts: bytes, again: bytes = b"", close: bool = True) -> AsyncIterator[str]:
    """A server that says `parts` to whoever calls, then `again` without end; else it hangs unless it is to `close`."""

    async def say(stream: SocketStream) -> None:
        async with stream:
            try:
                await stream.receive()
                for part in parts:
                    await stream.send(part)
                while again:
                    await stream.send(again)
                if not close:
                    await anyio.sleep_forever()
            except (anyio.BrokenResourceError, anyio.EndOfStream):
                return

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, say)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()
