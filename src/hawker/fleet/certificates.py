"""Certificates in a fleet: the home of an app tells all nodes those of its host names, sealed under the cluster's key,
so every edge can show them: at once where the catalog tells of changes, within two seconds where it is an agent. What a
node learns so is in its memory only; a lost home's stay until it is forgotten.
"""

import base64
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import anyio

from hawker.catalog.change import Value
from hawker.catalog.contract import OnTouched, Statement, Touched
from hawker.clock import Clock
from hawker.errors import Fault, HawkerError
from hawker.feed import ShownChallenge
from hawker.fleet.pages import PagedQuery, all_rows
from hawker.fleet.publish import Source
from hawker.fleet.quotas import CatalogRows
from hawker.fleet.rows import Row, certificate_row, challenge_row
from hawker.ids import AppName, NodeId
from hawker.log import bind
from hawker.record.app import CERTIFICATES
from hawker.secret.certificates import Certificates, FarCertificate, owner_of
from hawker.store.contract import Reader, keys_of
from hawker.vault import Vault

_EVERY_S, _QUERY_S = 1.0, 5.0
_GATHER_S, _CALM_S = 0.02, 0.25
"""The seconds from a change to the reading of what changed, since more changes may come; and the seconds from one
reading to the next one, however many changes come: each reading is of all rows."""
_KNOWN = PagedQuery(
    text="SELECT node, hostname, app, created_at, updated_at FROM certificates WHERE node <> ? AND {after} "
    "ORDER BY node, hostname LIMIT ?",
    key=("node", "hostname"),
    places=(0, 1),
)
_CHALLENGES = (
    "SELECT hostname, token, answer, app, kind FROM challenges WHERE node <> ? ORDER BY node, hostname LIMIT 1000"
)
CHALLENGES = "challenges"
_SEALED = "SELECT sealed FROM certificates WHERE node = ? AND hostname = ?"
_log = bind("hawker.certificates")

_TABLES = frozenset({"certificates", "challenges"})

_Place = tuple[str, str]  # node, host name


class ToldCatalog(CatalogRows, Protocol):
    def listen(self, callback: OnTouched) -> Callable[[], None]: ...


class FleetCertificates:
    """`vaults` are of the cluster's keys, the one to seal with first."""

    def __init__(
        self,
        me: NodeId,
        own: Certificates,
        store: Reader,
        catalog: ToldCatalog,
        vaults: Callable[[], Sequence[Vault]],
        clock: Clock,
    ) -> None:
        self._me = me
        self._own = own
        self._store = store
        self._catalog = catalog
        self._vaults = vaults
        self._clock = clock
        self._sealed: dict[str, tuple[Vault, bytes, bytes]] = {}
        self._read: dict[_Place, tuple[Value, FarCertificate]] = {}
        self._news = anyio.Event()

    @property
    def source(self) -> Source:
        """The source of this node's own certificates for the catalog. It is looked at now and then: the cluster's keys
        may have changed."""
        return Source(
            name=CERTIFICATES.name,
            every=lambda: keys_of(self._store, CERTIFICATES),
            rows=self._rows,
            looked_at=True,
            tables=frozenset({"certificates"}),
        )

    def challenges(self, note: Callable[[str, str], None]) -> Source:
        """The source of the challenges that this node shows to certificate authorities, so that all others do; `note`
        is told of changes. They are told at once: an authority waits for them."""
        told: set[str] = set()

        def changed() -> None:
            there = {each.hostname for each in self._own.challenges}
            for hostname in told | there:
                note(CHALLENGES, hostname)
            told.clear()
            told.update(there)

        self._own.listen(changed)
        return Source(
            name=CHALLENGES,
            every=lambda: [each.hostname for each in self._own.challenges],
            rows=lambda hostname: [
                challenge_row(self._me, each) for each in self._own.challenges if each.hostname == hostname
            ],
        )

    async def serve(self) -> None:
        """Reads the fleet's certificates after each change, until cancelled. What cannot be read leaves what was known
        before."""
        stop = self._catalog.listen(self._touched)
        try:
            while True:
                self._news = anyio.Event()
                try:
                    await self.read()
                except HawkerError as error:
                    _log.warning("certificates of other nodes cannot be read", extra={"error": str(error)})
                await self._clock.sleep(_CALM_S)
                with anyio.move_on_after(_EVERY_S):
                    await self._news.wait()
                await self._clock.sleep(_GATHER_S)
        finally:
            stop()

    def _touched(self, touched: Touched) -> None:
        if touched.everything or not _TABLES.isdisjoint(touched.tables):
            self._news.set()

    async def read(self) -> None:
        """Fetches what is new. Raises what a query raises."""
        shown = await self._query(_CHALLENGES, self._me)
        self._own.tell_far_challenges(
            ShownChallenge(hostname=hostname, token=token, answer=answer, app=AppName(app), kind=kind)
            for hostname, token, answer, app, kind in (map(str, row) for row in shown)
        )
        known: dict[_Place, tuple[Value, FarCertificate]] = {}
        for node, hostname, app, created_at, updated_at in await all_rows(
            self._catalog, _KNOWN, self._me, timeout_s=_QUERY_S
        ):
            at = (str(node), str(hostname))
            before = self._read.get(at)
            if before is not None and before[0] == updated_at and before[1].app == app:
                known[at] = before
                continue
            pair = await self._fetch(*at)
            if pair is not None:
                found = self._own.far(at[1], AppName(str(app)), pair, _seconds(created_at), _seconds(updated_at))
                known[at] = (updated_at, found)
        if known != self._read:
            self._read = known
            self._own.tell_far([found for _, found in known.values()])

    async def _fetch(self, node: str, hostname: str) -> bytes | None:
        """None for what cannot be opened: it was sealed with a key that this node has not yet, or has no more."""
        for (sealed,) in await self._query(_SEALED, node, hostname):
            for vault in self._vaults():
                try:
                    return vault.open(owner_of(hostname), base64.b64decode(str(sealed)))
                except (Fault, ValueError):
                    continue
        return None

    def _rows(self, key: str) -> Iterable[Row]:
        """Sealed anew only where the certificate or the key is another one: a row that says the same is not told."""
        record = self._store.get(CERTIFICATES, key)
        if record is None:
            self._sealed.pop(key, None)
            return ()
        vault = self._vaults()[0]
        known = self._sealed.get(key)
        if known is None or known[:2] != (vault, record.sealed):
            pair = self._own.opened(record)
            known = self._sealed[key] = (vault, record.sealed, vault.seal(owner_of(key), pair))
        return (certificate_row(self._me, record, base64.b64encode(known[2]).decode()),)

    async def _query(self, query: str, *params: Value) -> Sequence[tuple[Value, ...]]:
        return (await self._catalog.query(Statement(query=query, params=params), timeout_s=_QUERY_S)).rows


def _seconds(told: Value) -> float:
    return float(told) if isinstance(told, int | float) else 0.0
