"""`Mirror`: the tables of a catalog that an agent keeps, held in memory by live queries, for short looks by key. What
is looked at is as old as the last change that came; what was written through here is seen at once.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial

import anyio
import apsw

from hawker.catalog.change import Token, Value
from hawker.catalog.contract import Catalog, OnTouched, ResultTable, RowChange, Statement
from hawker.catalog.read_connection import READS, SQL_BYTES
from hawker.catalog.schema import Replicated, read, shipped
from hawker.catalog.storage import MemberRow
from hawker.clock import Clock
from hawker.errors import BadRequest, HawkerError, Unprocessable
from hawker.ids import NodeId
from hawker.log import bind

AGAIN_S, MOST_AGAIN_S = 1.0, 8.0
COMPARE_EVERY_S = 0.05
MOST_JUDGED = 16
MOST_KNOWN = 1024
MOST_MIB = 1024
_LOCAL = """
CREATE TABLE __corro_members (
    host TEXT NOT NULL PRIMARY KEY, state TEXT NOT NULL, since REAL NOT NULL, rtt REAL, epoch INTEGER NOT NULL);
CREATE TABLE __c_origin (origin TEXT, scope TEXT, epoch INTEGER, applied INTEGER, forgotten INTEGER);
"""

_LOOKED_AT = """SELECT 'node', node, 2 * cordoned + draining FROM nodes WHERE node = ?1
    UNION ALL SELECT 'app', name, home FROM apps WHERE node = ?1
    UNION ALL SELECT 'token', token_id, 0 FROM revoked_tokens WHERE node = ?1
    UNION ALL SELECT 'machine', id, generation FROM machines WHERE node = ?1
    UNION ALL SELECT 'volume', id, 0 FROM volumes WHERE node = ?1
    ORDER BY 1, 2"""
"""The rows that looks by key find of an owner; for all else a caller asks that owner."""

_log = bind("hawker.mirror")


class _Named:
    """What a stranger's query names, found where nothing runs: it is prepared, beside empty tables."""

    def __init__(self) -> None:
        self._found: dict[str, set[str]] = {}
        self._connection = apsw.Connection(":memory:")
        self._connection.execute(shipped())
        self._connection.limit(apsw.SQLITE_LIMIT_SQL_LENGTH, SQL_BYTES)
        self._connection.authorizer = self._note
        self._connection.exec_trace = lambda *_: False

    def columns(self, query: str) -> dict[str, set[str]]:
        """The columns that a query names, by table; none of a query that cannot be prepared here, of which the agent
        may say why."""
        self._found = {}
        with suppress(apsw.Error, UnicodeEncodeError):
            self._connection.execute(query, can_cache=False)
        return self._found

    def _note(self, action: int, table: str | None, column: str | None, *_: object) -> int:
        if action == apsw.SQLITE_READ and table is not None:
            self._found.setdefault(table, set()).add(column or "")
        return apsw.SQLITE_OK if action in READS else apsw.SQLITE_DENY


class Mirror:
    """Keeps `contract.Catalog`, for one thread. `__c_origin` has the forgotten nodes only: how far an agent is,
    `reached` asks itself."""

    def __init__(self, catalog: Catalog, clock: Clock, most_mib: int = MOST_MIB) -> None:
        """`most_mib` is how much memory the agent's rows may take: a table that has no room in it is dropped."""
        self._catalog, self._clock, self._most_mib = catalog, clock, most_mib
        self._tables = read((shipped(),)).tables
        self._connection = apsw.Connection(":memory:")
        self._connection.execute(shipped() + _LOCAL)
        self._known: OrderedDict[NodeId, Token] = OrderedDict()  # the least recently asked for first
        self._judging = anyio.CapacityLimiter(MOST_JUDGED)
        self._lost: dict[str, str] = {}
        self._named = _Named()

    def rows(self, query: str, *params: Value) -> Sequence[tuple[Value, ...]]:
        """All rows of a constant query of ours."""
        found: list[tuple[Value, ...]] = self._connection.execute(query, params).fetchall()
        return found

    def fence(self, node: NodeId, fence: int) -> None:
        """Takes note that `node` was forgotten."""
        row = (node, "global", 0, 0, fence)
        with self._connection:
            self._connection.execute("DELETE FROM __c_origin WHERE origin = ?", (node,))
            self._connection.execute("INSERT INTO __c_origin VALUES (?, ?, ?, ?, ?)", row)

    def set_members(self, members: Sequence[MemberRow]) -> None:
        rows = [(each.host, each.state, each.since, each.rtt, each.epoch) for each in members]
        with self._connection:
            self._connection.execute("DELETE FROM __corro_members")
            self._connection.executemany("INSERT INTO __corro_members VALUES (?, ?, ?, ?, ?)", rows)

    async def transact(self, statements: Sequence[Statement]) -> Token | None:
        """A live query may still tell of what was before, and then tells of this too: looks see it come twice."""
        token = await self._catalog.transact(statements)
        with self._connection:
            for each in statements:
                self._connection.execute(each.query, dict(each.named_params) or each.params)
        return token

    async def query(self, statement: Statement, *, timeout_s: float = 60.0) -> ResultTable:
        return await self._catalog.query(statement, timeout_s=timeout_s)

    def subscribe(self, statement: Statement) -> AbstractAsyncContextManager[AsyncIterator[ResultTable | RowChange]]:
        """Follows a live query. Raises `BadRequest` for what an agent would take, and never tell of new rows: it
        matches a change with a live query by the column, and a new row has changes of the columns that are no key."""
        for name, named in self._named.columns(statement.query).items():
            others = self._tables[name].columns if name in self._tables else ()
            if others and named.isdisjoint(others):
                raise BadRequest(f"a live query of {name} misses new rows: name a column too that is no key of it")
        return self._catalog.subscribe(statement)

    def listen(self, callback: OnTouched) -> Callable[[], None]:
        return self._catalog.listen(callback)

    async def reached(self, token: Token, *, timeout_s: float) -> bool:
        """Whether looks find what was written there, waiting for it if need be: the agent has it, and its live queries,
        each of which comes in its own time, told all of it. False also where that cannot be judged."""
        known = self._known.get(token.origin)
        if known is not None and known.epoch == token.epoch and known.version >= token.version:
            return True
        with anyio.move_on_after(timeout_s):
            async with self._judging:
                if not await self._catalog.reached(token, timeout_s=timeout_s):
                    return False
                while not await self._alike(token.origin):
                    await self._clock.sleep(COMPARE_EVERY_S)
            self._note(token)
            return True
        return False

    async def _alike(self, origin: NodeId) -> bool:
        """Whether looks find of an owner what the agent has of it now."""
        try:
            there = await self._catalog.query(Statement(query=_LOOKED_AT, params=(origin,)))
        except HawkerError:
            return False
        return list(there.rows) == self.rows(_LOOKED_AT, origin)

    def _note(self, token: Token) -> None:
        self._known[token.origin] = token
        self._known.move_to_end(token.origin)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    async def serve(self) -> None:
        """Follows the agent's tables, until cancelled. A table whose live query was lost stays as it was until there is
        another one."""
        async with anyio.create_task_group() as tasks:
            for name, table in self._tables.items():
                tasks.start_soon(partial(self._follow, name, table))

    @property
    def troubles(self) -> Sequence[str]:
        """The troubles, as sentences for people: what is looked at and not followed; empty when all is well."""
        return [f"cannot follow the table {name} at the agent: {why}" for name, why in sorted(self._lost.items())]

    async def _follow(self, name: str, table: Replicated) -> None:
        columns = (*table.key, *table.columns)
        statement = Statement(query=f"SELECT {', '.join(columns)} FROM {name}")
        pause_s = AGAIN_S
        while True:
            try:
                async with self._catalog.subscribe(statement) as told:
                    async for said in told:
                        self._take(name, table, said)
                        self._lost.pop(name, None)
                        pause_s = AGAIN_S
            except (HawkerError, apsw.Error) as error:  # also rows that do not fit the table
                self._lost[name] = str(error)
                _log.warning("cannot follow a table", extra={"table": name, "error": str(error)})
            await self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, MOST_AGAIN_S)

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
        if self._mib() > self._most_mib:
            self._connection.execute(f"DELETE FROM {name}")
            raise Unprocessable(f"with its rows all tables have more than {self._most_mib} MiB")

    def _mib(self) -> float:
        pages = [int(self._connection.pragma(name)) for name in ("page_count", "freelist_count", "page_size")]
        return (pages[0] - pages[1]) * pages[2] / 2**20
