"""A node's quotas in its fleet: which it set and what their subjects have here goes to the others as rows; what the
others set and have comes back. Late by the time that takes, about a third of a second in one region.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from hawker.catalog.change import Value
from hawker.catalog.contract import ResultTable, Statement
from hawker.clock import Clock
from hawker.errors import HawkerError
from hawker.fleet.pages import PagedQuery, all_rows
from hawker.fleet.publish import Source
from hawker.fleet.rows import Row, quota_row, usage_row
from hawker.ids import NodeId
from hawker.log import bind
from hawker.record.org import QUOTAS, Amount, QuotaRecord, QuotaRule
from hawker.store.contract import Reader, keys_of

LOOK_S, CALM_LOOK_S = 0.25, 1.0
"""The seconds between two looks: where there are quotas, and where there are none."""
USAGE = "quota_usage"
_QUERY_S = 5.0
_OF_OTHERS = "WHERE node <> ? AND {after} ORDER BY node, subject LIMIT ?"
_SET = PagedQuery(
    text=f"SELECT node, subject, limits, at, by FROM quotas {_OF_OTHERS}", key=("node", "subject"), places=(0, 1)
)
_HAVE = PagedQuery(
    text=f"SELECT node, subject, amount FROM quota_usage {_OF_OTHERS}", key=("node", "subject"), places=(0, 1)
)

_log = bind("hawker.quotas")


class FleetQuotas(Protocol):
    """The part of `quota.Quotas` that meets a fleet."""

    def all(self, reader: Reader) -> Mapping[str, QuotaRecord]: ...

    def learn(self, told: Mapping[str, QuotaRecord], elsewhere: Mapping[str, Amount]) -> None: ...

    def subjects(self, reader: Reader, orgs: Iterable[str]) -> Iterable[str]: ...

    def is_limited(self, reader: Reader, subject: str) -> bool: ...

    def listen(self, changed: Callable[[str], None]) -> None: ...


class KeptUsage(Protocol):
    """The part of `quota.UsageTally` that is told to a fleet."""

    @property
    def orgs(self) -> Iterable[str]: ...

    def look(self) -> None: ...

    def turn(self) -> None: ...

    def of(self, subject: str) -> Amount: ...


class CatalogRows(Protocol):
    async def query(self, statement: Statement, *, timeout_s: float) -> ResultTable: ...


def quota_sources(node: NodeId, store: Reader, quotas: FleetQuotas, tally: KeptUsage) -> tuple[Source, Source]:
    def set_here(subject: str) -> Iterable[Row]:
        record = store.get(QUOTAS, subject)
        return () if record is None else (quota_row(node, record),)

    def used_here(subject: str) -> Iterable[Row]:
        if not quotas.is_limited(store, subject):
            return ()
        tally.look()
        amount = tally.of(subject)
        return () if amount == Amount() else (usage_row(node, subject, amount),)

    def all_used() -> Iterable[str]:
        tally.look()
        return quotas.subjects(store, tally.orgs)

    return (
        Source(name=QUOTAS.name, every=lambda: keys_of(store, QUOTAS), rows=set_here),
        Source(name=USAGE, every=all_used, rows=used_here),
    )


class QuotaExchange:
    """`note` has the publisher tell of a subject anew."""

    def __init__(
        self,
        node: NodeId,
        store: Reader,
        clock: Clock,
        quotas: FleetQuotas,
        tally: KeptUsage,
        catalog: CatalogRows,
        note: Callable[[str, str], None],
    ) -> None:
        self._node = node
        self._store = store
        self._clock = clock
        self._quotas = quotas
        self._tally = tally
        self._catalog = catalog
        self._note = note
        self._noted: dict[str, Amount] = {}
        quotas.listen(lambda subject: note(USAGE, subject))

    async def serve(self) -> None:
        """Reads the fleet's quotas again and again, until cancelled. What cannot be read stays as it was."""
        while True:
            try:
                await self.look()
            except HawkerError as error:
                _log.warning("cannot read the fleet's quotas", extra={"error": str(error)})
            await self._clock.sleep(LOOK_S if self._quotas.all(self._store) else CALM_LOOK_S)

    async def look(self) -> None:
        told: dict[str, QuotaRecord] = {}
        for record in filter(None, map(_record, await self._rows(_SET))):
            known = told.get(record.subject)
            if known is None or (known.at, known.by, repr(known.limits)) < (record.at, record.by, repr(record.limits)):
                told[record.subject] = record
        elsewhere: dict[str, Amount] = {}
        for subject, amount in await self._rows(_HAVE):
            had = elsewhere.get(str(subject), Amount())
            elsewhere[str(subject)] = had.plus(_amount(amount))
        self._quotas.learn(told, elsewhere)
        self._tell()

    def _tell(self) -> None:
        """Also of what became less, which no admission notices."""
        self._tally.turn()
        self._tally.look()
        now = {subject: self._tally.of(subject) for subject in self._quotas.subjects(self._store, self._tally.orgs)}
        for subject in now.keys() | self._noted.keys():
            if now.get(subject) != self._noted.get(subject):
                self._note(USAGE, subject)
        self._noted = now

    async def _rows(self, query: PagedQuery) -> list[tuple[Value, ...]]:
        """Without their nodes."""
        rows = await all_rows(self._catalog, query, self._node, timeout_s=_QUERY_S)
        return [row[1:] for row in rows]


# Rows that no node of ours writes must not end one that reads them: where an agent keeps the catalog, others write too.


def _record(row: tuple[Value, ...]) -> QuotaRecord | None:
    subject, limits, at, by = row
    try:
        return QuotaRecord(
            subject=str(subject),
            limits=msgspec.json.decode(str(limits), type=QuotaRule),
            at=msgspec.convert(at, float, strict=False),
            by=str(by),
        )
    except msgspec.MsgspecError:
        return None


def _amount(text: Value) -> Amount:
    try:
        return msgspec.json.decode(str(text), type=Amount)
    except msgspec.MsgspecError:
        return Amount()
