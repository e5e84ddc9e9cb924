"""`AgentCatalog`: the catalog of an agent that serves the HTTP API (engine `corrosion`), be it Corrosion's or another
Hawker's. It never relies on what the two do differently: migrations, the time of an answer, texts of errors.

Who owns a row is a convention there: the agent does not see to it that a node writes its own rows only.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import anyio
import msgspec

from hawker.catalog.agent_answer import (
    ANSWER_S,
    BUSY,
    LINE_BYTES,
    AgentVersion,
    SubscriptionLost,
    WrongAgent,
    answer_of,
    lines,
    no_agent,
    refusal,
    short,
    shown,
    subscribed,
)
from hawker.catalog.change import Token
from hawker.catalog.contract import OnTouched, ResultTable, RowChange, Statement
from hawker.catalog.json_lines import cell
from hawker.clock import Clock
from hawker.errors import BadRequest, DeadlineExceeded, Fault, HawkerError, Unavailable
from hawker.ids import NodeId
from hawker.log import Secret

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
        """As the agent itself knows; False also of one that cannot say, be it away or another Hawker."""
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
    failed = next((shown(result.error) for result in written.results if result.error is not None), None)
    if status == 503:
        raise Unavailable(failed or BUSY)
    if status != 200:
        raise BadRequest(failed or f"the catalog's agent answered {status}")
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
