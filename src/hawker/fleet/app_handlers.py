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
from hawker.fair.occupancy import Occupancy, has_room
from hawker.fair.table import HOSTNAMES as HOSTNAMES_SHARE
from hawker.gossip.contract import Fate, Member
from hawker.ids import AppName, NodeId
from hawker.netpolicy.private_networks import keep, settle
from hawker.record import views
from hawker.record.app import (
    APPS,
    HOSTNAME_COUNTS,
    HOSTNAMES,
    NAMES,
    HostnameClaim,
    HostnameCount,
    NameRecord,
    NetworkOwner,
    org_of,
)
from hawker.record.machine import DESTROYED, MACHINES
from hawker.record.volume import GONE_VOLUMES, SNAPSHOTS, VOLUMES
from hawker.store.contract import Bucket, Reader, Store, Tx

if TYPE_CHECKING:
    from hawker.fleet.app_bundle import AppBundler


class _OfApp(msgspec.Struct, frozen=True, kw_only=True):
    """All of a record that is read here."""

    app: str


_ALL = ""
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
    """The counts of what an app has on this node."""

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
        self._counted = False  # the host names, by this process

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
        """The owner of a machine or volume, from this node's own records, else from what its catalog says of the
        region."""
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
        """Shows this node's copy of an app, and makes this node its home when the call takes it. Refused while gossip
        says that the home lives, whoever believes that it was forgotten."""
        body = call.body
        if self._bundler is None:
            raise NotServed("this node is of no cluster")
        if body.take and any(each.node == body.old and each.fate in _LIVES for each in self._members()):
            raise Conflict(f"node {body.old:.40}, the home of app '{call.params.app_name:.80}', lives")
        return await self._bundler.settle(call.params.app_name, body.old, take=body.take)

    async def keep(self, call: Call[AppParams, NoQuery, NameRequest]) -> NameKept:
        """Keeps a name for the claim that asked first, until it is released."""
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
        """Keeps the number of a private network for the network that asked first, and for good."""
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
        """Keeps a host name for the app that asked first, until it is released."""
        hostname, body, now = call.params.hostname, call.body, self._clock.now()
        if call.certified not in ("", body.home):
            raise Forbidden(f"node {call.certified} claims a host name for an app of node {body.home:.40}")
        app, org = app_name(body.app), (body.org or "")[:80]
        known = self._app_of_hostname(hostname)
        if not self._counted:
            await self._store.write(_count)
            self._counted = True

        def apply(tx: Tx) -> HostnameClaim:
            there = tx.get(HOSTNAMES, hostname)
            if there is None and known is not None and known != app:
                return HostnameClaim(app=known, home=self._node, at=now)
            if there is not None and there.app not in (app, body.instead_of):
                return there
            asks = HostnameClaim(app=app, home=NodeId(body.home), at=now, org=org or org_of(tx, app))
            if there is None:
                _check_room(tx, asks.org)
            else:
                _enter(tx, there.org, -1)
            _enter(tx, asks.org, 1)
            tx.put(HOSTNAMES, hostname, asks)
            return asks

        kept = await self._store.write(apply)
        return HostnameKept(app=kept.app, home=kept.home, age_s=max(0.0, now - kept.at))

    async def release_hostname(self, call: Call[HostnameParams, ReleaseHostnameQuery, None]) -> None:
        """Releases a host name; only the claim's home may. A new home of the app claims its names anew before it
        can."""
        hostname, app = call.params.hostname, call.query.app

        def apply(tx: Tx) -> None:
            there = tx.get(HOSTNAMES, hostname)
            if there is None or there.app != app:
                return
            if call.certified not in ("", there.home):
                raise Forbidden(f"node {call.certified} releases a host name that node {there.home} has claimed")
            _enter(tx, there.org, -1)
            tx.delete(HOSTNAMES, hostname)

        await self._store.write(apply)


def _check_room(reader: Reader, org: str) -> None:
    """For one more. Raises `QuotaExceeded`."""
    share, nothing = HOSTNAMES_SHARE, HostnameCount(names=0)
    mine = (reader.get(HOSTNAME_COUNTS, org) or nothing).names
    everyone = reader.get(HOSTNAME_COUNTS, _ALL) or nothing
    if not has_room(share, mine=mine, total=everyone.names, keys=everyone.orgs + (not mine)):
        said = f"hostname: organization {org} has {mine} of the {everyone.names} host names of"
        said += f" apps that are kept; one has at most {share.each}, and of the last"
        said += f" {share.reserve} of {share.total} an equal part"
        raise QuotaExceeded(f"{said}: remove some, or use a wildcard", shortfall={"hostnames": 1})


def _enter(tx: Tx, org: str, names: int) -> None:
    """So many more of the organization are kept; none where that is not counted yet."""
    there, everyone = tx.get(HOSTNAME_COUNTS, org), tx.get(HOSTNAME_COUNTS, _ALL)
    if everyone is None:
        return
    before = 0 if there is None else there.names
    now = max(0, before + names)
    if now:
        tx.put(HOSTNAME_COUNTS, org, HostnameCount(names=now))
    else:
        tx.delete(HOSTNAME_COUNTS, org)
    orgs = everyone.orgs + (now > 0) - (before > 0)
    tx.put(HOSTNAME_COUNTS, _ALL, HostnameCount(names=everyone.names + now - before, orgs=orgs))


def _count(tx: Tx) -> None:
    """All that are kept, each for an organization from now on, whatever was counted before: an older version may have
    been here."""
    occupancy = Occupancy(HOSTNAMES_SHARE)
    for hostname, claim in list(tx.scan(HOSTNAMES)):
        org = claim.org or org_of(tx, claim.app)
        if not claim.org:
            tx.put(HOSTNAMES, hostname, msgspec.structs.replace(claim, org=org))
        occupancy.enter(org)
    for org, _ in list(tx.scan(HOSTNAME_COUNTS)):
        tx.delete(HOSTNAME_COUNTS, org)
    for org, names in occupancy.counts.items():
        tx.put(HOSTNAME_COUNTS, org, HostnameCount(names=names))
    tx.put(HOSTNAME_COUNTS, _ALL, HostnameCount(names=occupancy.total, orgs=len(occupancy.counts)))
