"""One HTTP answer as it goes out. Remembers whether it has begun, because an error can be answered only before that."""

from collections.abc import Awaitable, Callable

import msgspec

from hawker.api.call_metadata import CallMetadata
from hawker.api.codec import CURSOR_HEADER, Send, encode_json
from hawker.api.failure import problem_of
from hawker.errors import HawkerError

JSON = b"application/json"
LINES = b"application/x-ndjson"

Headers = list[tuple[bytes, bytes]]


class HttpReply:
    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id.encode()
        self.status = 0  # 0: nothing was sent yet
        self.before: Callable[[int], Awaitable[None]] | None = None
        """What is done, with the status, before the first byte of the answer goes out."""
        self.listed_errors = False

    async def body(self, status: int, data: bytes, *, kind: bytes = JSON, extra: Headers | None = None) -> None:
        """The whole answer at once."""
        headers = [(b"content-length", b"%d" % len(data)), *(extra or ())] if status != 204 else [*(extra or ())]
        if data:
            headers.append((b"content-type", kind))
        await self._start(status, headers)
        await self._send({"type": "http.response.body", "body": data})

    async def answer(
        self, status: int, data: bytes, cursor: str | None, *, kind: bytes = JSON, metadata: CallMetadata | None = None
    ) -> None:
        extra = metadata.headers() if metadata else []
        if cursor:
            extra.append((CURSOR_HEADER.encode(), cursor.encode()))
        await self.body(status, data, kind=kind, extra=extra)

    async def problem(self, error: HawkerError, extra: Headers | None = None) -> None:
        """Nothing when the answer has begun: the client sees it break off."""
        if not self.status:
            later = [] if error.after_s is None else [(b"retry-after", b"%d" % error.after_s)]
            await self.body(error.status, self._problem(error), extra=[*(extra or ()), *later])

    async def last_problem(self, error: HawkerError) -> None:
        """An error after which the connection is closed; the caller calls `end`."""
        data = self._problem(error)
        length = (b"content-length", b"%d" % len(data))
        await self._start(error.status, [length, (b"content-type", JSON), (b"connection", b"close")])
        await self.part(data)

    def _problem(self, error: HawkerError) -> bytes:
        problem = problem_of(error)
        if self.listed_errors:
            problem = msgspec.structs.replace(problem, errors=({"message": problem.error},))
        return encode_json(problem)

    async def begin(self, status: int, kind: bytes) -> None:
        """The head of an answer whose body comes in parts."""
        await self._start(status, [(b"content-type", kind), (b"cache-control", b"no-store")])

    async def part(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})

    async def _start(self, status: int, headers: Headers) -> None:
        self.status = status
        if self.before is not None:
            await self.before(status)
        headers.append((b"fly-request-id", self._request_id))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
