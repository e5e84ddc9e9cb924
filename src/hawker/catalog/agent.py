"""`AgentCatalog`: the catalog of an agent that serves the HTTP API (engine `corrosion`), be it Corrosion's or another
Hawker's. It never relies on what the two do differently: migrations, the time of an answer, texts of errors.

Who owns a row is a convention there: the agent does not see to it that a node writes its own rows only.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import msgspec

from hawker.catalog.change import Token, Value
from hawker.catalog.contract import OnTouched, ResultTable, RowChange, Statement
from hawker.catalog.json_lines import cell
from hawker.clock import Clock
from hawker.errors import BadRequest, DeadlineExceeded, Fault, HawkerError, Unavailable, Unprocessable
from hawker.ids import NodeId
from hawker.log import Secret

LINE_BYTES = 8 * 1024 * 1024
MOST_ROWS = 100_000
WRITE_S = 30.0
RETRIES = 8
_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.1, 5.0
_HEAD_S = 30.0


class SubscriptionLost(Unavailable):
    """The agent does not know this subscription any more, or not its changes from where we were."""


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    """A line of an answer; one of these is set."""

    columns: tuple[str, ...] | None = None
    row: tuple[int, list[Any]] | None = None
    eoq: dict[str, Any] | None = None
    change: tuple[str, int, list[Any], int] | None = None
    error: str | None = None


class _Written(msgspec.Struct, frozen=True, kw_only=True):
    results: tuple[dict[str, Any], ...] = ()
    version: int | None = None
    actor_id: str | None = None


class AgentCatalog:
    """Keeps `contract.Catalog`. `url` is the agent's; `session` is the caller's, and stays open."""

    def __init__(self, session: aiohttp.ClientSession, url: str, clock: Clock, token: Secret | None = None) -> None:
        self._session, self._url, self._clock = session, url.rstrip("/"), clock
        self._headers = {"authorization": f"Bearer {token.reveal()}"} if token else {}

    async def transact(self, statements: Sequence[Statement]) -> Token | None:
        body = [_written(statement) for statement in statements]
        with _translated(lost=Fault):
            timeout = aiohttp.ClientTimeout(total=WRITE_S)
            async with self._post("/v1/transactions", body, timeout=timeout) as response:
                answer = await response.read()
                if response.status not in (200, 400, 500, 503):
                    raise await _refused(response, answer)
        return _token(response.status, answer)

    async def query(self, statement: Statement, *, timeout_s: float = 60.0) -> ResultTable:
        path = f"/v1/queries?timeout={max(1, round(timeout_s))}"
        with _translated():
            timeout = aiohttp.ClientTimeout(total=timeout_s + 1)
            async with self._post(path, _written(statement), timeout=timeout) as response:
                if response.status != 200:
                    raise await _refused(response, await response.read())
                async with aclosing(_events(response)) as events:
                    return await _table(events)

    @asynccontextmanager
    async def subscribe(self, statement: Statement) -> AsyncIterator[AsyncIterator[ResultTable | RowChange]]:
        """A lost connection is taken up again where it was; raises `SubscriptionLost` where that cannot be."""
        async with aclosing(self._follow(statement)) as told:
            yield told

    def listen(self, callback: OnTouched) -> Callable[[], None]:
        """An agent tells nobody of all changes: who wants to know looks now and then, or subscribes."""
        return lambda: None

    async def reached(self, token: Token, *, timeout_s: float) -> bool:
        """An agent does not say how far it is in another one's stream, so only time would tell: False, and the caller
        asks the owner."""
        return False

    async def _follow(self, statement: Statement) -> AsyncGenerator[ResultTable | RowChange, None]:
        last: int | None = None
        path, failures = "/v1/subscriptions", 0
        while True:
            try:
                with _translated():
                    async with self._open(path, statement, last) as response:
                        if response.status != 200:
                            raise await _refused(response, await response.read())
                        path = f"/v1/subscriptions/{response.headers.get('corro-query-id', '')}"
                        async with aclosing(_told(_events(response), last)) as told:
                            async for said, at in told:
                                last, failures = at, 0
                                yield said
            except SubscriptionLost:
                raise
            except Unavailable:
                failures += 1
                if last is None or failures > RETRIES:
                    raise
            await self._clock.sleep(min(_FIRST_PAUSE_S * 2**failures, _MOST_PAUSE_S))

    def _open(self, path: str, statement: Statement, last: int | None) -> Any:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_HEAD_S)
        query = f"?from={last}" if last else ""
        if last is None:
            return self._post(path, _written(statement), timeout=timeout)
        url = f"{self._url}{path}{query}"
        return self._session.get(url, headers=self._headers, timeout=timeout, read_bufsize=LINE_BYTES)

    def _post(self, path: str, body: object, *, timeout: aiohttp.ClientTimeout) -> Any:
        headers = {**self._headers, "content-type": "application/json"}
        data = msgspec.json.encode(body)
        return self._session.post(
            self._url + path, data=data, headers=headers, timeout=timeout, read_bufsize=LINE_BYTES
        )


def _written(statement: Statement) -> object:
    """As the HTTP API takes it; names get a prefix, blobs are lists of numbers."""
    if statement.named_params:
        named = {f":{name}": cell(value) for name, value in statement.named_params.items()}
        return {"query": statement.query, "named_params": named}
    return {"query": statement.query, "params": [cell(value) for value in statement.params]}


def _token(status: int, answer: bytes) -> Token | None:
    """Where a write is. An agent has one stream of one epoch."""
    try:
        written = msgspec.json.decode(answer, type=_Written)
    except msgspec.MsgspecError as error:
        if status == 503:
            raise Unavailable("the catalog's agent is busy, try again") from error
        raise Fault(f"the catalog's agent answered {status}, and nothing that can be read") from error
    failed = next((str(result["error"]) for result in written.results if "error" in result), None)
    if status == 503:
        raise Unavailable(failed or "the catalog's agent is busy, try again")
    if status != 200:
        raise BadRequest(failed or f"the catalog's agent answered {status}")
    if written.version is None or written.actor_id is None:
        return None
    return Token(origin=NodeId(written.actor_id.replace("-", "")[-8:]), epoch=0, version=written.version)


async def _refused(response: aiohttp.ClientResponse, answer: bytes) -> HawkerError:
    try:
        said = msgspec.json.decode(answer, type=_Event).error
    except msgspec.MsgspecError:
        said = None
    text = said or answer[:200].decode(errors="replace") or f"the catalog's agent answered {response.status}"
    match response.status:
        case 400 | 422:
            return BadRequest(text)
        case 401:
            return Fault("the catalog's agent refuses our token: give the right one with --catalog-token-file")
        case 408:
            return DeadlineExceeded(text)
        case 404:
            return SubscriptionLost(text)
        case 503:
            return Unavailable(text)
    return Fault(text)


async def _events(response: aiohttp.ClientResponse) -> AsyncGenerator[_Event, None]:
    """Lines until the end, which for a query is after `eoq` and for a subscription never in good order."""
    try:
        async for line in response.content:
            if line.strip():
                yield _decode(line)
    except ValueError as error:
        raise Fault(f"the catalog's agent sent a line of more than {LINE_BYTES >> 20} MiB, or no JSON") from error


async def _table(events: AsyncGenerator[_Event, None]) -> ResultTable:
    columns: tuple[str, ...] = ()
    rows: list[tuple[Value, ...]] = []
    async for event in events:
        if event.columns is not None:
            columns = event.columns
        elif event.row is not None:
            rows.append(_row(event.row[1]))
            if len(rows) > MOST_ROWS:
                raise Unprocessable(f"the answer has more than {MOST_ROWS} rows: ask for less")
        elif event.error is not None:
            raise Fault(f"the catalog's agent: {event.error}")
        elif event.eoq is not None:
            return ResultTable(columns=columns, rows=tuple(rows))
    raise Unavailable("the catalog's agent ended its answer early, try again")


async def _told(
    events: AsyncGenerator[_Event, None], last: int | None
) -> AsyncGenerator[tuple[ResultTable | RowChange, int], None]:
    """What a subscription says, and the number of the last change that it has in it."""
    columns: tuple[str, ...] = ()
    rows: list[tuple[Value, ...]] = []
    async with aclosing(events):
        async for event in events:
            if event.error is not None:
                raise SubscriptionLost(f"the catalog's agent: {event.error}")
            if event.columns is not None:
                columns = event.columns
            elif event.row is not None:
                rows.append(_row(event.row[1]))
            elif event.eoq is not None:
                number = int(event.eoq.get("change_id") or 0)
                if last is not None and number != last:
                    raise SubscriptionLost("changes were missed while the agent was away: subscribe anew")
                if last is None:
                    yield ResultTable(columns=columns, rows=tuple(rows)), number
                last = number
            elif event.change is not None:
                kind, row_id, cells, number = event.change
                if last is not None and number != last + 1:
                    raise SubscriptionLost(f"the catalog's agent passed over changes {last + 1} to {number - 1}")
                last = number
                yield RowChange(kind=kind, row_id=row_id, row=_row(cells), number=number), last
    raise Unavailable("the catalog's agent ended the subscription, try again")


def _row(cells: list[Any]) -> tuple[Value, ...]:
    return tuple(bytes(one) if isinstance(one, list) else one for one in cells)


@contextmanager
def _translated(lost: type[HawkerError] = Unavailable) -> Iterator[None]:
    """What went wrong on the way, as errors of the family. A write whose answer was lost may have happened."""
    try:
        yield
    except aiohttp.ClientConnectorError as error:
        raise Unavailable(f"the catalog's agent cannot be reached: {error}") from error
    except TimeoutError as error:
        raise DeadlineExceeded("the catalog's agent did not answer in time") from error
    except aiohttp.ClientError as error:
        raise lost(f"the connection to the catalog's agent was lost: {error}") from error


_decode = msgspec.json.Decoder(_Event).decode
