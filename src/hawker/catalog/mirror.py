"""`Mirror`: the tables of a catalog that an agent keeps, held in memory by live queries, for short looks by key. What
is looked at is as old as the last change that came.
"""

from collections.abc import Sequence
from functools import partial

import anyio
import apsw

from hawker.catalog.change import Value
from hawker.catalog.contract import Catalog, ResultTable, RowChange, Statement
from hawker.catalog.schema import Replicated, read, shipped
from hawker.catalog.storage import MemberRow
from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.log import bind

AGAIN_S = 1.0
_LOCAL = """
CREATE TABLE __corro_members (
    host TEXT NOT NULL PRIMARY KEY, state TEXT NOT NULL, since REAL NOT NULL, rtt REAL, epoch INTEGER NOT NULL);
CREATE TABLE __c_origin (origin TEXT, scope TEXT, epoch INTEGER, applied INTEGER, forgotten INTEGER);
"""

_log = bind("hawker.mirror")


class Mirror:
    """For one thread. `__c_origin` stays empty: how far an agent is in a stream, it does not say."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self._catalog, self._clock = catalog, clock
        self._tables = read((shipped(),)).tables
        self._connection = apsw.Connection(":memory:")
        self._connection.execute(shipped() + _LOCAL)

    def rows(self, query: str, *params: Value) -> Sequence[tuple[Value, ...]]:
        """All of a constant query of ours."""
        found: list[tuple[Value, ...]] = self._connection.execute(query, params).fetchall()
        return found

    def set_members(self, members: Sequence[MemberRow]) -> None:
        rows = [(each.host, each.state, each.since, each.rtt, each.epoch) for each in members]
        with self._connection:
            self._connection.execute("DELETE FROM __corro_members")
            self._connection.executemany("INSERT INTO __corro_members VALUES (?, ?, ?, ?, ?)", rows)

    async def serve(self) -> None:
        """Until cancelled. A table whose live query was lost stays as it was until there is another one."""
        async with anyio.create_task_group() as tasks:
            for name, table in self._tables.items():
                tasks.start_soon(partial(self._follow, name, table))

    async def _follow(self, name: str, table: Replicated) -> None:
        columns = (*table.key, *table.columns)
        statement = Statement(query=f"SELECT {', '.join(columns)} FROM {name}")
        while True:
            try:
                async with self._catalog.subscribe(statement) as told:
                    async for said in told:
                        self._take(name, table, said)
            except HawkerError as error:
                _log.warning("cannot follow a table", extra={"table": name, "error": str(error)})
            await self._clock.sleep(AGAIN_S)

    def _take(self, name: str, table: Replicated, said: ResultTable | RowChange) -> None:
        columns = (*table.key, *table.columns)
        put = f"INSERT OR REPLACE INTO {name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        with self._connection:
            if isinstance(said, ResultTable):
                self._connection.execute(f"DELETE FROM {name}")
                self._connection.executemany(put, said.rows)
            elif said.kind == "delete":
                where = " AND ".join(f"{column} = ?" for column in table.key)
                self._connection.execute(f"DELETE FROM {name} WHERE {where}", said.row[: len(table.key)])
            else:
                self._connection.execute(put, said.row)
