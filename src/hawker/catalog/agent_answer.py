"""What an agent answers: lines of JSON, read within bounds of memory and time. Whoever answers may be wrong, slow or
another program altogether; each of that is an error in words, and none of it is believed.
"""

from collections.abc import AsyncGenerator
from typing import Annotated, Any, TypeAlias

import aiohttp
import anyio
import msgspec
from aiohttp.http_exceptions import LineTooLong

from hawker.catalog.change import Value
from hawker.catalog.contract import ResultTable, RowChange
from hawker.errors import BadRequest, DeadlineExceeded, Fault, HawkerError, Unavailable, Unprocessable

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
    """What answers is no agent, or none that answers us: trying again is no use, a configuration is to be mended."""


class _End(msgspec.Struct, frozen=True, kw_only=True):
    change_id: AgentVersion | None = None


class AgentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of an answer; one of these is set."""

    columns: tuple[str, ...] | None = None
    row: tuple[int, list[Any]] | None = None
    eoq: _End | None = None
    change: tuple[str, int, list[Any], AgentVersion] | None = None
    error: str | None = None


async def lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Until the end, which for a query is after `eoq` and for a subscription never in good order."""
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
    """What a subscription says from change `last` on, and the number of the last change that it has in it. Where `last`
    is None, first all rows; raises `TimeoutError` when they take longer than `answer_s`."""
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
    """All of an answer that is no list of rows."""
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
