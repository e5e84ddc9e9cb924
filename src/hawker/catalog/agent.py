"""`AgentCatalog`: the catalog of an agent that serves the HTTP API (engine `corrosion`), be it Corrosion's or another
Hawker's. It never relies on what the two do differently: migrations, the time of an answer, texts of errors but for
SQLite's own.

Who owns a row is a convention there: the agent does not see to it that a node writes its own rows only. Its answers
are lines of JSON, read within bounds of memory and time: whoever answers may be wrong, slow or another program
altogether, and none of it is believed.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Annotated, Any, TypeAlias

import aiohttp
import anyio
import msgspec
from aiohttp.http_exceptions import LineTooLong

from hawker.catalog.change import Token, Value
from hawker.catalog.contract import OnTouched, ResultTable, RowChange, Statement
from hawker.catalog.json_lines import cell
from hawker.clock import Clock
from hawker.errors import BadRequest, DeadlineExceeded, Fault, HawkerError, Unavailable, Unprocessable
from hawker.ids import NodeId
from hawker.log import Secret

LINE_BYTES = 16 * 1024 * 1024
MOST_BYTES = 256 * 1024 * 1024
MOST_ROWS = 100_000
MOST_FOLLOWED_ROWS = 1_000_000
ANSWER_S = 60.0
_SHORT_BYTES = 1024 * 1024  # of an answer that is no list of rows
_SHOWN = 200
BUSY = "the catalog's agent is busy, try again"
_INTEGERS = range(-(2**63), 2**63)
AgentVersion: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class SubscriptionLost(Unavailable):
    """The agent does not know this subscription any more, or not its changes from where we were."""


class WrongAgent(Fault):
    """The server that answers is no agent, or no agent that answers us: trying again is no use, a configuration is to
    be mended."""


class _End(msgspec.Struct, frozen=True, kw_only=True):
    change_id: AgentVersion | None = None


class AgentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of an answer; one of these is set."""

    columns: tuple[str, ...] | None = None
    """The names of the answer's columns; comes once, before all rows."""
    row: tuple[int, list[Any]] | None = None
    eoq: _End | None = None
    change: tuple[str, int, list[Any], AgentVersion] | None = None
    error: str | None = None
    """The error in the agent's words; nothing comes after it."""


async def lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """The lines of a response until its end, which for a query is after `eoq` and for a subscription never in good
    order."""
    try:
        async for line in response.content:
            if line.strip():
                yield line
    except LineTooLong as error:
        raise Fault(f"the catalog's agent sent a line of more than {LINE_BYTES >> 20} MiB") from error


def event_of(line: bytes) -> AgentEvent:
    try:
        return _decode(line)
    except (ValueError, RecursionError) as error:
        raise no_agent(f"it said {shown(line)!r}") from error


async def answer_of(told: AsyncGenerator[bytes, None], most_rows: int = MOST_ROWS) -> tuple[ResultTable, int]:
    """The rows up to `eoq`, and the number of the last change that they have in them."""
    columns: tuple[str, ...] = ()
    rows: list[tuple[Value, ...]] = []
    size = 0
    async for line in told:
        size += len(line)
        if size > MOST_BYTES:
            raise Unprocessable(f"the agent's answer has more than {MOST_BYTES >> 20} MiB: ask for less")
        event = event_of(line)
        if event.columns is not None:
            columns = event.columns
        elif event.row is not None:
            rows.append(_row(event.row[1]))
            if len(rows) > most_rows:
                raise Unprocessable(f"the answer has more than {most_rows} rows: ask for less")
        elif event.error is not None:
            raise Fault(f"the catalog's agent: {shown(event.error)}")
        elif event.eoq is not None:
            return ResultTable(columns=columns, rows=tuple(rows)), event.eoq.change_id or 0
    raise Unavailable("the catalog's agent ended its answer early, try again")


async def subscribed(
    told: AsyncGenerator[bytes, None], last: int | None, answer_s: float = ANSWER_S
) -> AsyncGenerator[tuple[ResultTable | RowChange, int], None]:
    """The rows and changes of a subscription from change `last` on, each with the number of the last change that it has
    in it. Where `last` is None, first all rows; raises `TimeoutError` when they take longer than `answer_s`."""
    if last is None:
        with anyio.fail_after(answer_s):
            table, last = await answer_of(told, MOST_FOLLOWED_ROWS)
        yield table, last
    async for line in told:
        event = event_of(line)
        if event.error is not None:
            raise SubscriptionLost(f"the catalog's agent: {shown(event.error)}")
        if event.eoq is not None and (event.eoq.change_id or 0) != last:
            raise SubscriptionLost("changes were missed while the agent was away: subscribe anew")
        if event.change is not None:
            kind, row_id, cells, number = event.change
            if number != last + 1:
                raise SubscriptionLost(f"the catalog's agent passed over changes {last + 1} to {number - 1}")
            last = number
            yield RowChange(kind=kind, row_id=row_id, row=_row(cells), number=number), last
    raise Unavailable("the catalog's agent ended the subscription, try again")


async def short(response: aiohttp.ClientResponse) -> bytes:
    """The whole answer, where it is no list of rows."""
    said = bytearray()
    async for some in response.content.iter_any():
        said += some
        if len(said) > _SHORT_BYTES:
            raise Fault(f"the catalog's agent answered with more than {_SHORT_BYTES >> 10} KiB where few are wanted")
    return bytes(said)


async def refusal(response: aiohttp.ClientResponse) -> HawkerError:
    """Why there are no rows."""
    answer = await short(response)
    try:
        said = msgspec.json.decode(answer, type=AgentEvent).error
    except (ValueError, RecursionError):
        said = None
    text = shown(said or answer)
    match response.status:
        case 400 | 422:
            return BadRequest(text)
        case 401 | 403:
            return WrongAgent("the catalog's agent refuses our token: give the right one with --catalog-token-file")
        case 408:
            return DeadlineExceeded(text)
        case 429 | 502 | 503 | 504:
            return Unavailable(BUSY)
        case 500 if said is not None:
            return Fault(f"the catalog's agent: {text}")
    return no_agent(f"it answered {response.status}: {text!r}")


def no_agent(why: str) -> WrongAgent:
    return WrongAgent(f"what answers at --catalog-url is no agent of a catalog ({why}): give the agent's api.addr")


def shown(said: bytes | str) -> str:
    """The beginning, for people, without what a terminal would obey."""
    text = said[: 4 * _SHOWN].decode(errors="replace") if isinstance(said, bytes) else said[: 4 * _SHOWN]
    return "".join(each if each.isprintable() else " " for each in " ".join(text.split()))[:_SHOWN]


def _row(cells: list[Any]) -> tuple[Value, ...]:
    """Raises `Fault` for what SQLite cannot store."""
    return tuple(map(_value, cells))


def _value(cell: Any) -> Value:
    try:
        value = bytes(cell) if isinstance(cell, list) else cell
    except (TypeError, ValueError) as error:
        raise Fault("the catalog's agent sent a list that is no blob") from error
    if isinstance(value, dict) or (isinstance(value, int) and value not in _INTEGERS):
        raise Fault("the catalog's agent sent a value that no database has")
    return value


_decode = msgspec.json.Decoder(AgentEvent).decode


WRITE_S = 30.0
RETRIES = 8
_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.1, 5.0
_QUERY_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
LOOK_EVERY_S = 0.05
_EPOCH_DIGITS = 14  # of an actor's 32: a number of 17 decimal digits, which a token can hold
_APPLIED = f"""SELECT 1 FROM crsql_db_versions AS v
    WHERE substr(lower(hex(v.site_id)), 1, {_EPOCH_DIGITS}) = ? AND v.db_version >= ?
    AND NOT EXISTS (SELECT 1 FROM __corro_bookkeeping_gaps AS g
        WHERE g.actor_id = v.site_id AND ? BETWEEN g.start AND g."end")
    AND NOT EXISTS (SELECT 1 FROM __corro_seq_bookkeeping AS p WHERE p.site_id = v.site_id AND p.db_version = ?)"""
"""Versions of an actor come in any order, whole or in parts: one is there when it is neither beyond the last, nor known
to be missing, nor there in parts only."""

_PASSING = re.compile(
    r"database (?:\w+ )?is locked|readonly database|database (?:or disk )?is full|disk I/O error"
    r"|interrupt(?:ed|\(\))|out of memory|malloc\(\) failed"
)
"""SQLite's texts for what passes, as `capture` has them for its own, within an agent's. Values go as parameters, which
no text of SQLite's quotes."""


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    error: str | None = None


class _Written(msgspec.Struct, frozen=True, kw_only=True):
    results: tuple[_Result, ...] = ()
    version: AgentVersion | None = None
    actor_id: str | None = None


class AgentCatalog:
    """Keeps `contract.Catalog`. `url` is the agent's; `session` is the caller's, and stays open. `node` is who writes:
    a token names it, and the agent's actor as its epoch, because actors have names and histories of their own.
    `answer_s` is the longest wait for a live query to begin, and for its first rows."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        clock: Clock,
        node: NodeId,
        token: Secret | None = None,
        *,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._answer_s = answer_s
        self._session, self._url, self._clock, self._node = session, url.rstrip("/"), clock, node
        self._headers = {"authorization": f"Bearer {token.reveal()}"} if token else {}

    async def transact(self, statements: Sequence[Statement]) -> Token | None:
        body = [_written(statement) for statement in statements]
        with _translated(lost=Fault):
            async with self._post("/v1/transactions", body, aiohttp.ClientTimeout(total=WRITE_S)) as response:
                if response.status not in (200, 400, 500, 503):
                    raise await refusal(response)
                return _token(self._node, response.status, await short(response))

    async def query(self, statement: Statement, *, timeout_s: float = 60.0) -> ResultTable:
        path = f"/v1/queries?timeout={max(1, round(timeout_s))}"
        with _translated():
            timeout = aiohttp.ClientTimeout(total=timeout_s + 1)
            async with self._post(path, _written(statement), timeout) as response:
                if response.status != 200:
                    raise await refusal(response)
                async with aclosing(lines(response)) as told:
                    table, _ = await answer_of(told)
                    return table

    @asynccontextmanager
    async def subscribe(self, statement: Statement) -> AsyncIterator[AsyncIterator[ResultTable | RowChange]]:
        """A lost connection is taken up again where it was; raises `SubscriptionLost` where that cannot be."""
        async with aclosing(self._follow(statement)) as told:
            yield told

    def listen(self, callback: OnTouched) -> Callable[[], None]:
        """An agent tells nobody of all changes: who wants to know looks now and then, or subscribes."""
        return lambda: None

    async def reached(self, token: Token, *, timeout_s: float) -> bool:
        """Whether the agent has come to `token`, as it knows itself; False also of an agent that cannot say, be it away
        or another Hawker."""
        with anyio.move_on_after(timeout_s):
            while not await self._applied(token):
                await self._clock.sleep(LOOK_EVERY_S)
            return True
        return False

    async def _applied(self, token: Token) -> bool:
        actor = f"{token.epoch:0{_EPOCH_DIGITS}x}"
        statement = Statement(query=_APPLIED, params=(actor, token.version, token.version, token.version))
        try:
            return bool((await self.query(statement)).rows)
        except HawkerError:
            return False

    async def _follow(self, statement: Statement) -> AsyncGenerator[ResultTable | RowChange, None]:
        place: tuple[str, int] | None = None  # its path, and the last change
        failures = 0
        while True:
            try:
                async with aclosing(self._listen(statement, place)) as told:
                    async for said, at in told:
                        place, failures = at, 0
                        yield said
            except SubscriptionLost:
                raise
            except Unavailable:
                failures += 1
                if place is None or failures > RETRIES:
                    raise
            await self._clock.sleep(min(_FIRST_PAUSE_S * 2**failures, _MOST_PAUSE_S))

    async def _listen(
        self, statement: Statement, place: tuple[str, int] | None
    ) -> AsyncGenerator[tuple[ResultTable | RowChange, tuple[str, int]], None]:
        """Over one connection; each with the place where the next one goes on. Raises `SubscriptionLost` where the
        agent cannot go on from `place`."""
        with _translated():
            with anyio.fail_after(self._answer_s):
                response = await self._open(statement, place)
            async with response:
                if response.status != 200:
                    with anyio.fail_after(self._answer_s):
                        refused = await refusal(response)
                    raise SubscriptionLost(str(refused)) if response.status == 404 and place else refused
                path = _path_of(response) if place is None else place[0]
                last = None if place is None else place[1]
                async with (
                    aclosing(lines(response)) as told,
                    aclosing(subscribed(told, last, self._answer_s)) as events,
                ):
                    async for said, at in events:
                        yield said, (path, at)

    def _open(self, statement: Statement, place: tuple[str, int] | None) -> Any:
        timeout = aiohttp.ClientTimeout(total=None)
        if place is None:
            return self._post("/v1/subscriptions", _written(statement), timeout)
        path, last = place
        url = f"{self._url}{path}" + (f"?from={last}" if last else "")
        return self._session.get(
            url, headers=self._headers, timeout=timeout, read_bufsize=LINE_BYTES // 2, allow_redirects=False
        )

    def _post(self, path: str, body: object, timeout: aiohttp.ClientTimeout) -> Any:
        """To this agent only: our token is for nobody to whom it may send us."""
        headers = {**self._headers, "content-type": "application/json"}
        return self._session.post(
            self._url + path,
            data=msgspec.json.encode(body),
            headers=headers,
            timeout=timeout,
            read_bufsize=LINE_BYTES // 2,
            allow_redirects=False,
        )


def _path_of(response: aiohttp.ClientResponse) -> str:
    name = response.headers.get("corro-query-id", "")
    if not _QUERY_ID.fullmatch(name):
        raise no_agent(f"it calls a subscription {shown(name)!r}")
    return f"/v1/subscriptions/{name}"


def _written(statement: Statement) -> object:
    """As the HTTP API takes it; names get a prefix, blobs are lists of numbers."""
    if statement.named_params:
        named = {f":{name}": cell(value) for name, value in statement.named_params.items()}
        return {"query": statement.query, "named_params": named}
    return {"query": statement.query, "params": [cell(value) for value in statement.params]}


def _token(node: NodeId, status: int, answer: bytes) -> Token | None:
    """Where a write of this node is."""
    try:
        written = msgspec.json.decode(answer, type=_Written)
    except (ValueError, RecursionError) as error:
        if status == 503:
            raise Unavailable(BUSY) from error
        raise Fault(f"the catalog's agent answered {status}, and nothing that can be read") from error
    failed = next((result.error for result in written.results if result.error is not None), "")
    if status == 503:
        raise Unavailable(shown(failed) or BUSY)
    if status != 200 and _PASSING.search(failed):
        raise Unavailable(f"the catalog's agent cannot write now: {shown(failed)}")
    if status != 200:
        raise BadRequest(shown(failed) or f"the catalog's agent answered {status}")
    if written.version is None or written.actor_id is None:
        return None
    return Token(origin=node, epoch=_epoch(written.actor_id), version=written.version)


def _epoch(actor_id: str) -> int:
    """An actor's history is one epoch: an agent with a new database is another actor."""
    try:
        return int(actor_id.replace("-", "")[:_EPOCH_DIGITS], 16)
    except ValueError as error:
        raise Fault(f"the catalog's agent calls itself {actor_id!r:.60}, which is no actor's id") from error


@contextmanager
def _translated(lost: type[HawkerError] = Unavailable) -> Iterator[None]:
    """What went wrong on the way, as errors of the family. A write whose answer was lost may have happened."""
    try:
        yield
    except aiohttp.ClientSSLError as error:
        raise WrongAgent(f"the catalog's agent does not speak TLS as https:// asks: {error}") from error
    except aiohttp.ClientConnectorError as error:
        raise Unavailable(f"the catalog's agent cannot be reached: {error}") from error
    except TimeoutError as error:
        raise DeadlineExceeded("the catalog's agent did not answer in time") from error
    except aiohttp.ClientResponseError as error:
        raise no_agent(f"it does not speak HTTP as they do: {shown(error.message)!r}") from error
    except aiohttp.ClientError as error:
        raise lost(f"the connection to the catalog's agent was lost: {error}") from error
