"""How the catalog does: `GET /v1/health` and `POST /v1/table_stats`."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from hawker.catalog.contract import Statement
from hawker.catalog.http.app import CatalogEndpoint
from hawker.catalog.http.exchange import Answered, Exchange, decimal, number
from hawker.catalog.http.service import Doctor, Vitals
from hawker.catalog.http.statement import NotJson, WrongShape
from hawker.catalog.live.evaluation import read_schema
from hawker.catalog.live.join_tree import quoted
from hawker.catalog.read_connection import ReadPool
from hawker.clock import Clock
from hawker.fair.threads import Pool, in_thread

COUNT_S = 60.0
MOST_TABLES = 500
_LEAST_STATUS, _MOST_STATUS = 200, 599


class StatsRequest(msgspec.Struct, frozen=True, kw_only=True):
    tables: tuple[str, ...]
    """The names of tables whose rows are counted; a table that is not there is an error."""


class HealthEndpoints:
    def __init__(self, doctor: Doctor, file: Path, pool: ReadPool, clock: Clock) -> None:
        self._doctor, self._file, self._pool, self._clock = doctor, file, pool, clock

    def endpoints(self) -> list[CatalogEndpoint]:
        return [
            CatalogEndpoint("GET", "/v1/health", self.health, most=4),
            CatalogEndpoint("POST", "/v1/table_stats", self.table_stats, most=4),
        ]

    async def health(self, exchange: Exchange, _: str) -> None:
        query = exchange.query()
        await exchange.body()
        failure = number(query, "failure_status") or 503
        if not _LEAST_STATUS <= failure <= _MOST_STATUS:
            raise Answered(400, f"failure_status: a status from {_LEAST_STATUS} to {_MOST_STATUS} is wanted")
        vitals = self._doctor.vitals()
        if vitals.p99_lag is None:
            await exchange.say(failure, {"error": "no p99 lag information available"})
            return
        await exchange.say(200 if is_well(vitals, query) else failure, {"response": vitals})

    async def table_stats(self, exchange: Exchange, _: str) -> None:
        try:
            request = msgspec.json.decode(await exchange.json(), type=StatsRequest)
        except msgspec.ValidationError as error:
            raise WrongShape(str(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise NotJson(str(error)) from error
        if len(request.tables) > MOST_TABLES:
            raise WrongShape(f"{MOST_TABLES} tables at most")
        total, invalid = await in_thread(Pool.REPLICA, self._count, request.tables)
        await exchange.say(200, {"total_row_count": total, "invalid_tables": invalid})

    def _count(self, names: tuple[str, ...]) -> tuple[int, list[str]]:
        schema = read_schema(self._file)
        total, invalid = 0, []
        with self._pool.one() as guarded:
            guarded.deadline(self._clock.monotonic() + COUNT_S)
            for name in names:
                table = schema.table(name)
                if table is None:
                    invalid.append(name)
                    continue
                answer = guarded.start(Statement(query=f"SELECT count(*) FROM {quoted(table.name)}"))
                (count,) = guarded.take(answer, rows=1, size_bytes=1)[0]
                answer.close()
                total += int(count or 0)
        return total, invalid


def is_well(vitals: Vitals, query: Mapping[str, str]) -> bool:
    """Whether replication is well by the bounds that the caller gives. Lag counts only together with a queue, when a
    bound for that is given."""
    gaps, most_lag = number(query, "gaps"), decimal(query, "p99_lag")
    most_queued, queued = number(query, "max_queue"), number(query, "queue_size")
    if gaps is not None and vitals.gaps > gaps:
        return False
    if most_queued is not None and vitals.queue_size > most_queued:
        return False
    late = most_lag is not None and (vitals.p99_lag or 0.0) > most_lag
    return not late or (queued is not None and vitals.queue_size <= queued)
