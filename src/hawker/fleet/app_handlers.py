"""The worker's side of apps in a fleet: whose something is, an app that comes from its home, names that are kept for
whoever makes an app of them.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from hawker.api.contract.app import App, AppParams
from hawker.api.contract.market import OrderedApp
from hawker.api.contract.owner import (
    CARRY_APP,
    GET_OWNER,
    KEEP_HOSTNAME,
    KEEP_NAME,
    KEEP_NETWORK,
    RELEASE_HOSTNAME,
    RELEASE_NAME,
    SETTLE_HOME,
    AppCopy,
    HomeRequest,
    HostnameKept,
    HostnameParams,
    HostnameRequest,
    NameKept,
    NameRequest,
    NetworkKept,
    NetworkParams,
    NetworkRequest,
    Owner,
    OwnerParams,
    ReleaseHostnameQuery,
    ReleaseQuery,
)
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery
from hawker.app import app_name, network_name
from hawker.catalog.contract import Catalog, Statement
from hawker.clock import Clock
from hawker.errors import Conflict, Forbidden, NotFound, NotServed, QuotaExceeded
from hawker.fair.crowd import Crowd
from hawker.fair.table import HOSTNAMES as HOSTNAMES_SHARE
from hawker.gossip.contract import Fate, Member
from hawker.ids import AppName, NodeId
from hawker.netpolicy.private_networks import keep, settle
from hawker.record import views
from hawker.record.app import APPS, HOSTNAMES, NAMES, HostnameClaim, NameRecord, NetworkOwner, org_of
from hawker.record.machine import DESTROYED, MACHINES
from hawker.record.volume import GONE_VOLUMES, SNAPSHOTS, VOLUMES
from hawker.store.contract import Bucket, Reader, Store, Tx

if TYPE_CHECKING:
    from hawker.fleet.app_bundle import AppBundler


class _OfApp(msgspec.Struct, frozen=True, kw_only=True):
    """All of a record that is read here."""

    app: str


class _OfOrg(msgspec.Struct, frozen=True, kw_only=True):
    """All of a claim that is read for a count."""

    app: AppName
    org: str = ""


_CLAIMS = Bucket(HOSTNAMES.name, _OfOrg)
_LIVES = (Fate.ALIVE, Fate.SUSPECT)
_PLACES = {
    "machine": (Bucket(MACHINES.name, _OfApp), Bucket(DESTROYED.name, _OfApp)),
    "volume": (Bucket(VOLUMES.name, _OfApp), Bucket(GONE_VOLUMES.name, _OfApp)),
    "snapshot": (Bucket(SNAPSHOTS.name, _OfApp),),
}
_ROWS = {
    "machine": "SELECT node, app FROM machines WHERE id = ? ORDER BY generation DESC, node LIMIT 1",
    "volume": "SELECT node, app FROM volumes WHERE id = ? ORDER BY node LIMIT 1",
}


class AppCounts(Protocol):
    """What an app has on this node."""

    def machine_count(self, reader: Reader, name: str) -> int: ...

    def volume_count(self, reader: Reader, name: AppName) -> int: ...


class PeerAppHandlers:
    """`enforce` puts an app's network policies in force soon; `app_of_hostname` is whose a host name is as far as this
    node knows, also from before names were claimed. `catalog` and `bundler` are None, and there are no
    `members`, on a node that is alone."""

    def __init__(
        self,
        node: NodeId,
        store: Store,
        clock: Clock,
        *,
        counts: AppCounts,
        enforce: Callable[[str], Awaitable[None]],
        catalog: Catalog | None,
        bundler: "AppBundler | None",
        app_of_hostname: Callable[[str], AppName | None],
        members: Callable[[], Sequence[Member]],
    ) -> None:
        self._node = node
        self._store = store
        self._clock = clock
        self._counts = counts
        self._enforce = enforce
        self._catalog = catalog
        self._bundler = bundler
        self._app_of_hostname = app_of_hostname
        self._members = members

    def bind(self, handlers: Handlers) -> None:
        handlers.on(GET_OWNER, self.owner)
        handlers.on(CARRY_APP, self.carry)
        handlers.on(SETTLE_HOME, self.settle)
        handlers.on(KEEP_NAME, self.keep)
        handlers.on(RELEASE_NAME, self.release)
        handlers.on(KEEP_NETWORK, self.keep_network)
        handlers.on(KEEP_HOSTNAME, self.keep_hostname)
        handlers.on(RELEASE_HOSTNAME, self.release_hostname)

    async def owner(self, call: Call[OwnerParams, NoQuery, None]) -> Owner:
        """From this node's own records, else from what its catalog says of the region."""
        for bucket in _PLACES[call.params.kind]:
            found = self._store.get(bucket, call.params.id)
            if found is not None:
                return Owner(node=self._node, app=found.app)
        told = await self._told(call.params)
        if told is None:
            raise NotFound(f"{call.params.kind} not found")
        return told

    async def _told(self, params: OwnerParams) -> Owner | None:
        if self._catalog is None or params.kind not in _ROWS:
            return None
        table = await self._catalog.query(Statement(query=_ROWS[params.kind], params=(params.id,)))
        return next((Owner(node=str(node), app=str(app)) for node, app in table.rows), None)

    async def carry(self, call: Call[AppParams, NoQuery, OrderedApp]) -> App:
        if self._bundler is None:
            raise NotServed("this node is of no cluster")
        record = await self._bundler.carry(call.body)
        await self._enforce(record.name)
        machines = self._counts.machine_count(self._store, record.name)
        return views.app(record, machines, self._counts.volume_count(self._store, record.name))

    async def settle(self, call: Call[AppParams, NoQuery, HomeRequest]) -> AppCopy:
        """Not while gossip says that the home lives, whoever believes that it was forgotten."""
        body = call.body
        if self._bundler is None:
            raise NotServed("this node is of no cluster")
        if body.take and any(each.node == body.old and each.fate in _LIVES for each in self._members()):
            raise Conflict(f"node {body.old:.40}, the home of app '{call.params.app_name:.80}', lives")
        return await self._bundler.settle(call.params.app_name, body.old, take=body.take)

    async def keep(self, call: Call[AppParams, NoQuery, NameRequest]) -> NameKept:
        """Kept for whoever asked first, until it is released."""
        name, body, now = app_name(call.params.app_name), call.body, self._clock.now()
        fresh = NameRecord(claim=body.claim, home=NodeId(body.home), at=now)

        def apply(tx: Tx) -> tuple[NameRecord, bool]:
            there = tx.get(NAMES, name)
            if there is None or there.claim == body.instead_of:
                tx.put(NAMES, name, fresh)
                there = fresh
            return there, tx.get(APPS, name) is not None

        kept, taken = await self._store.write(apply)
        return NameKept(claim=kept.claim, home=kept.home, age_s=max(0.0, now - kept.at), taken=taken)

    async def release(self, call: Call[AppParams, ReleaseQuery, None]) -> None:
        name, claim = call.params.app_name, call.query.claim

        def apply(tx: Tx) -> None:
            there = tx.get(NAMES, name)
            if there is not None and claim in ("", there.claim):
                tx.delete(NAMES, name)

        await self._store.write(apply)

    async def keep_network(self, call: Call[NetworkParams, NoQuery, NetworkRequest]) -> NetworkKept:
        """For whoever asked first, and for good."""
        body = call.body
        owner, number = NetworkOwner(org=body.org, network=network_name(body.network)), int(call.params.number, 16)

        def apply(tx: Tx) -> NetworkOwner:
            if body.settled:
                settle(tx, number, owner)
                return owner
            return keep(tx, number, owner)

        kept = await self._store.write(apply)
        return NetworkKept(org=kept.org, network=kept.network)

    async def keep_hostname(self, call: Call[HostnameParams, NoQuery, HostnameRequest]) -> HostnameKept:
        """For the app that asked first, until it is released."""
        hostname, body, now = call.params.hostname, call.body, self._clock.now()
        if call.certified not in ("", body.home):
            raise Forbidden(f"node {call.certified} claims a host name for an app of node {body.home:.40}")
        asks = HostnameClaim(app=app_name(body.app), home=NodeId(body.home), at=now, org=(body.org or "")[:80])
        known = self._app_of_hostname(hostname)

        def apply(tx: Tx) -> HostnameClaim:
            there = tx.get(HOSTNAMES, hostname)
            if there is None and known is not None and known != asks.app:
                return HostnameClaim(app=known, home=self._node, at=now)
            if there is not None and there.app not in (asks.app, body.instead_of):
                return there
            if there is None:
                _check_room(tx, asks)
            tx.put(HOSTNAMES, hostname, asks)
            return asks

        kept = await self._store.write(apply)
        return HostnameKept(app=kept.app, home=kept.home, age_s=max(0.0, now - kept.at))

    async def release_hostname(self, call: Call[HostnameParams, ReleaseHostnameQuery, None]) -> None:
        """By the claim's home alone. A new home of the app claims its names anew before it can."""
        hostname, app = call.params.hostname, call.query.app

        def apply(tx: Tx) -> None:
            there = tx.get(HOSTNAMES, hostname)
            if there is None or there.app != app:
                return
            if call.certified not in ("", there.home):
                raise Forbidden(f"node {call.certified} releases a host name that node {there.home} has claimed")
            tx.delete(HOSTNAMES, hostname)

        await self._store.write(apply)


def _check_room(tx: Tx, asks: HostnameClaim) -> None:
    """For one more. Raises `QuotaExceeded`."""
    share, mine = HOSTNAMES_SHARE, _org_of(tx, asks)
    crowd = Crowd(share)
    for _, claim in tx.scan(_CLAIMS):
        crowd.enter(_org_of(tx, claim))
    if not crowd.fits(mine):
        said = f"hostname: organization {mine} has {crowd.counts.get(mine, 0)} of the {crowd.total} host names of"
        said += f" apps that are kept; one has at most {share.each}, and of the last"
        said += f" {share.reserve} of {share.total} an equal part"
        raise QuotaExceeded(f"{said}: remove some, or use a wildcard", shortfall={"hostnames": 1})


def _org_of(reader: Reader, claim: HostnameClaim | _OfOrg) -> str:
    """As its home says; of an older one what this node knows."""
    return claim.org or org_of(reader, claim.app)
