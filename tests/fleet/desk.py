"""A catalog and a gossip for tests of what a worker does with them: real tables in a database in memory, and members
that are as the test says."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from importlib.resources import files

import apsw
import msgspec

from hawker.catalog.change import Token, Value
from hawker.catalog.contract import OnTouched, ResultTable, RowChange, Statement, Touched
from hawker.errors import BadRequest, Unavailable, Unprocessable
from hawker.fleet.failover import CatalogQueries
from hawker.gossip.contract import Fate, Member, NodeMeta
from hawker.gossip.keyring import GossipKeyring
from hawker.ids import NodeId

ME, OTHER = NodeId("0000000a"), NodeId("0000000b")


class Desk:
    """Keeps `Catalog`. `away` makes it refuse, and `refuses` what writes this value; `told` are the
    sizes of its transactions."""

    def __init__(self) -> None:
        self._connection = apsw.Connection(":memory:")
        self._connection.execute((files("hawker.catalog") / "tables.sql").read_text())
        self.away = False
        self.refuses: str | None = None
        self.told: list[list[str]] = []
        self.listeners: list[OnTouched] = []

    async def transact(self, statements: Sequence[Statement]) -> Token | None:
        self._open()
        written = [value for each in statements if each.query.startswith("INSERT") for value in each.params]
        if self.refuses is not None and self.refuses in written:
            raise BadRequest("a row may have 1048576 bytes")
        with self._connection:
            for statement in statements:
                self._connection.execute(statement.query, statement.params)
        self.told.append([statement.query.partition("(")[0].strip() for statement in statements])
        for tell in self.listeners:
            tell(Touched(tables={}, everything=True))
        return Token(origin=ME, epoch=1, version=len(self.told))

    async def query(self, statement: Statement, *, timeout_s: float = 60.0) -> ResultTable:
        self._open()
        cursor = self._connection.execute(statement.query, statement.params)
        rows = [tuple(row) for row in cursor]
        return ResultTable(columns=self._columns(statement), rows=tuple(rows))

    def listen(self, callback: OnTouched) -> Callable[[], None]:
        self.listeners.append(callback)
        return lambda: self.listeners.remove(callback)

    def subscribe(self, statement: Statement) -> AbstractAsyncContextManager[AsyncIterator[ResultTable | RowChange]]:
        raise AssertionError("no test asks for this")

    async def reached(self, token: Token, *, timeout_s: float) -> bool:
        return True

    def rows(self, query: str) -> list[tuple[Value, ...]]:
        return [tuple(row) for row in self._connection.execute(query)]

    def run(self, query: str, *params: Value) -> None:
        self._connection.execute(query, params)

    def _columns(self, statement: Statement) -> tuple[str, ...]:
        cursor = self._connection.execute(f"SELECT * FROM (SELECT 1) LEFT JOIN ({statement.query})", statement.params)
        return tuple(column[0] for column in cursor.get_description())[1:]

    def _open(self) -> None:
        if self.away:
            raise Unavailable("the catalog is away")


class Narrow:
    """Keeps `CatalogQueries` over another one whose answers may have so many bytes of text; `asked` are how many
    queries were refused and answered."""

    def __init__(self, catalog: CatalogQueries, most_bytes: int) -> None:
        self._catalog, self._most_bytes = catalog, most_bytes
        self.refused = self.answered = 0

    async def query(self, statement: Statement, *, timeout_s: float) -> ResultTable:
        answer = await self._catalog.query(statement, timeout_s=timeout_s)
        if sum(len(value) for row in answer.rows for value in row if isinstance(value, str)) > self._most_bytes:
            self.refused += 1
            raise Unprocessable("the answer has more than so many rows or MiB: ask for less")
        self.answered += 1
        return answer


class Crowd:
    """Keeps `Gossip`: two nodes, and nothing is sent."""

    def __init__(self, me: NodeId) -> None:
        self._me = me
        self._fates = {me: Fate.ALIVE, OTHER: Fate.ALIVE}
        self.keyring = GossipKeyring(keys={1: b"\1" * 32}, primary=1)
        self.without_keys: list[NodeId] = []
        self.fences: dict[NodeId, int] = {}
        self.skew_s = 0.0  # of the other one

    @property
    def me(self) -> Member:
        return self._member(self._me)

    def members(self) -> list[Member]:
        return [self._member(node) for node in self._fates]

    def set(self, node: NodeId, fate: Fate) -> None:
        self._fates[node] = fate

    def rekey(self, keyring: GossipKeyring) -> None:
        self.keyring = keyring

    def behind(self) -> list[NodeId]:
        return self.without_keys

    def forget(self, node: NodeId, fence: int) -> None:
        self.fences[node] = fence

    def send(self, to: NodeId, message: bytes) -> None:
        raise AssertionError("no test asks for this")

    async def ask(self, to: NodeId, message: bytes, *, timeout_s: float) -> bytes:
        raise AssertionError("no test asks for this")

    def declare(self, *, epoch: int | None = None, meta: NodeMeta | None = None) -> None:
        raise AssertionError("no test asks for this")

    async def leave(self) -> None:
        raise AssertionError("no test asks for this")

    def _member(self, node: NodeId) -> Member:
        meta = NodeMeta(region="local", api=f"http://{node}")
        member = Member(node=node, address=f"{node}:4281", incarnation=1, fate=self._fates[node], since=1.0, meta=meta)
        return msgspec.structs.replace(member, rtt_s=0.001, skew_s=self.skew_s) if node == OTHER else member


class Forgetful:
    """Keeps `Forgets`."""

    def __init__(self) -> None:
        self.forgotten: list[NodeId] = []

    async def forget(self, origin: NodeId) -> int:
        self.forgotten.append(origin)
        return 7
