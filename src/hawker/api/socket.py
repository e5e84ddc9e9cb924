"""The server's end of a WebSocket: the first message opens the call, an error is the last message."""

from contextlib import suppress
from typing import Any, Generic

import anyio

from hawker.api.codec import BodyCodec, Receive, Send, encode_json
from hawker.api.endpoints import Setup, guard_of
from hawker.api.error_boundary import typed_errors
from hawker.api.failure import failed
from hawker.api.grant import Grant
from hawker.api.request import CallReader, Incoming
from hawker.api.route import R, Socket, U
from hawker.errors import BadRequest, HawkerError, Unavailable

OPENING_DEADLINE_S = 10.0


class ServerChannel(Generic[R, U]):
    """JSON text frames over ASGI."""

    def __init__(self, receive: Receive, send: Send, up: type[U]) -> None:
        self._receive, self._send = receive, send
        self._codec = BodyCodec(up)
        self._gone = False

    async def send(self, message: R) -> None:
        """Raises `Unavailable` when the client has gone."""
        try:
            await self._send({"type": "websocket.send", "text": encode_json(message).decode()})
        except OSError as error:
            self._gone = True
            raise Unavailable("the client has gone") from error

    async def receive(self) -> U | None:
        data = await self.frame()
        return None if data is None else self._codec.decode(data)

    async def frame(self) -> bytes | None:
        """The next frame, undecoded."""
        if self._gone:
            return None
        message = await self._receive()
        if message["type"] != "websocket.receive":
            self._gone = True
            return None
        text = message.get("text")
        return message.get("bytes") or b"" if text is None else text.encode()

    async def end(self, error: HawkerError | None) -> None:
        """Say why if it was an error, and close; nothing if the client has gone."""
        if self._gone:
            return
        with suppress(OSError):  # it goes as soon as it has the last message
            if error is not None:
                await self._send({"type": "websocket.send", "text": encode_json(failed(error)).decode()})
            await self._send({"type": "websocket.close", "code": 1000})


class SocketEndpoint:
    def __init__(self, route: Socket[Any, Any, Any, Any, Any], setup: Setup) -> None:
        self.path, self.guard = route.path, guard_of(route)
        self._up = route.up
        self._handler = setup.handlers.of(route)
        self._reader = CallReader(route, 0)
        self._shutdown = setup.shutdown

    async def __call__(self, request: Incoming, grant: Grant, send: Send) -> int:
        """The HTTP status that a plain call would have had."""
        await send({"type": "websocket.accept", "headers": [(b"fly-request-id", request.request_id.encode())]})
        channel: ServerChannel[Any, Any] = ServerChannel(request.receive, send, self._up)
        error = await self._converse(request, grant, channel)
        await channel.end(error)
        return 200 if error is None else error.status

    async def _converse(self, request: Incoming, grant: Grant, channel: ServerChannel[Any, Any]) -> HawkerError | None:
        try:
            with typed_errors(request.request_id):
                await self._handle(request, grant, channel)
        except HawkerError as error:
            return error
        return None

    async def _handle(self, request: Incoming, grant: Grant, channel: ServerChannel[Any, Any]) -> None:
        opening = None
        with anyio.move_on_after(OPENING_DEADLINE_S):
            opening = await channel.frame()
        if opening is None:
            raise BadRequest(f"the opening message did not come within {OPENING_DEADLINE_S:g} s")
        call = self._reader.with_data(request, grant, opening)
        with self._shutdown.until_stop():
            await self._handler(call, channel)
