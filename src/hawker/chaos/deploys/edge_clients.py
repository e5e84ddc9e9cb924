"""Clients of an app at every edge of a fleet, half of them over connections that they keep: what they ask in vain."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import anyio
from anyio.abc import ByteStream

from hawker.clock import Clock
from hawker.value_object import ValueObject

_ANSWER_S = 30.0
_MOST_HEAD = 16 * 1024
_TRIES = 2


class LostRequest(ValueObject, frozen=True):
    """`at` is when, in monotonic seconds; `edge` the address that it was sent to."""

    at: float
    edge: str
    what: str
    """What came in place of a good answer."""


class _Closed(Exception):
    """The connection ended before an answer began."""


def _page(edge: str) -> bytes:
    return f"GET / HTTP/1.1\r\nHost: {edge}\r\n\r\n".encode()


class EdgeClients:
    """`pace_s` is between a client's answer and its next request. `ask` makes the bytes of a request; one client
    asks at each edge for each of `keeps`, which says whether it keeps its connection."""

    def __init__(
        self,
        edges: Sequence[str],
        port: int,
        clock: Clock,
        pace_s: float,
        *,
        ask: Callable[[str], bytes] = _page,
        keeps: Sequence[bool] = (True, False),
    ) -> None:
        self._edges = edges
        self._port = port
        self._clock = clock
        self._pace_s = pace_s
        self._request = ask
        self._keeps = keeps
        self.answered = 0  # with 200, of all
        self._counting = 0  # how often all was forgotten
        self._slowest_s: dict[str, float] = {}
        self._sent: Counter[str] = Counter()
        self._lost: list[LostRequest] = []

    async def serve(self) -> None:
        """Until cancelled."""
        async with anyio.create_task_group() as tasks:
            for edge in self._edges:
                for keeps in self._keeps:
                    tasks.start_soon(self._ask, edge, keeps)

    def forget(self) -> None:
        """Count anew from here; what is under way is not counted."""
        self._counting += 1
        self._sent.clear()
        self._lost.clear()
        self._slowest_s.clear()

    def sent(self, spared: Collection[str]) -> int:
        return sum(self._sent[edge] for edge in spared)

    def lost(self, spared: Collection[str]) -> list[LostRequest]:
        """Of those that were sent to these edges, oldest first."""
        return [each for each in self._lost if each.edge in spared]

    def slowest_s(self, spared: Collection[str]) -> float:
        """The longest that one of those that were sent to these edges took, lost ones too; 0 for none."""
        return max((self._slowest_s.get(edge, 0.0) for edge in spared), default=0.0)

    async def answers(self, edge: str) -> bool:
        """Whether the edge answers one request with 200 now."""
        try:
            return await self._once(_Connection(edge, self._port, _page)) == 200
        except (OSError, EOFError, TimeoutError, _Closed, anyio.BrokenResourceError, anyio.EndOfStream):
            return False

    async def _ask(self, edge: str, keeps: bool) -> None:
        connection = _Connection(edge, self._port, self._request)
        try:
            while True:
                await self._counted(edge, connection)
                if not keeps:
                    await connection.close()
                await self._clock.sleep(self._pace_s)
        finally:
            with anyio.CancelScope(shield=True):
                await connection.close()

    async def _counted(self, edge: str, connection: "_Connection") -> None:
        self._sent[edge] += 1
        counting, began = self._counting, self._clock.monotonic()
        why = ""
        try:
            status = await self._once(connection)
            why = "" if status == 200 else str(status)
        except TimeoutError:
            why = f"no answer within {_ANSWER_S:g} s"
        except (OSError, EOFError, _Closed, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            why = f"{type(error).__name__}: {error}"
        now = self._clock.monotonic()
        if counting == self._counting:
            self._slowest_s[edge] = max(self._slowest_s.get(edge, 0.0), now - began)
            if why:
                self._lost.append(LostRequest(now, edge, why))
        if why:
            await connection.close()
        else:
            self.answered += 1

    async def _once(self, connection: "_Connection") -> int:
        """The status. A connection that is used again may have ended meanwhile, as any client knows: then the request
        is sent once more over a new one."""
        with anyio.fail_after(_ANSWER_S):
            for attempt in range(_TRIES):
                again = connection.is_open and attempt == 0
                try:
                    return await connection.ask()
                except _Closed:
                    await connection.close()
                    if not again:
                        raise
            raise _Closed


class _Connection:
    def __init__(self, edge: str, port: int, request: Callable[[str], bytes]) -> None:
        self._edge = edge
        self._port = port
        self._request = request
        self._stream: ByteStream | None = None

    @property
    def is_open(self) -> bool:
        return self._stream is not None

    async def ask(self) -> int:
        if self._stream is None:
            self._stream = await anyio.connect_tcp(self._edge, self._port)
        try:
            await self._stream.send(self._request(self._edge))
            first = await self._stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError) as error:
            raise _Closed from error
        got = await _until(self._stream, first, lambda data: b"\r\n\r\n" in data)
        head, _, body = got.partition(b"\r\n\r\n")
        status, length, closes = _read(head)
        await _until(self._stream, body, lambda data: len(data) >= length)
        if closes:
            await self.close()
        return status

    async def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await anyio.aclose_forcefully(stream)


async def _until(stream: ByteStream, got: bytes, enough: Callable[[bytes], bool]) -> bytes:
    while not enough(got):
        if len(got) > _MOST_HEAD:
            raise EOFError("the answer is too long")
        got += await stream.receive()
    return got


def _read(head: bytes) -> tuple[int, int, bool]:
    """Status, length of the body, and whether the connection ends."""
    first, *rest = head.decode("latin-1").split("\r\n")
    fields = {name.strip().lower(): value.strip() for name, _, value in (row.partition(":") for row in rest)}
    return int(first.split()[1]), int(fields.get("content-length", "0")), fields.get("connection", "") == "close"
