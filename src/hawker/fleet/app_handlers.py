"""The worker's side of apps in a fleet: whose something is, an app that comes from its home, names that are kept for
whoever makes an app of them.
"""

import msgspec

from hawker.api.contract.app import App, AppParams
from hawker.api.contract.market import OrderedApp
from hawker.api.contract.owner import (
    CARRY_APP,
    GET_OWNER,
    KEEP_NAME,
    RELEASE_NAME,
    SETTLE_HOME,
    AppCopy,
    HomeRequest,
    NameKept,
    NameRequest,
    Owner,
    OwnerParams,
    ReleaseQuery,
)
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery
from hawker.app import app_name
from hawker.catalog.contract import Statement
from hawker.errors import Conflict, NotFound, NotServed
from hawker.gossip.contract import Fate
from hawker.ids import NodeId
from hawker.record import views
from hawker.record.app import APPS, NAMES, NameRecord
from hawker.record.machine import DESTROYED, MACHINES
from hawker.record.volume import GONE_VOLUMES, SNAPSHOTS, VOLUMES
from hawker.store.contract import Bucket, Tx
from hawker.worker.parts import Parts


class _OfApp(msgspec.Struct, frozen=True, kw_only=True):
    """All of a record that is read here."""

    app: str


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


class PeerAppHandlers:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._store = parts.deps.store

    def bind(self, handlers: Handlers) -> None:
        handlers.on(GET_OWNER, self.owner)
        handlers.on(CARRY_APP, self.carry)
        handlers.on(SETTLE_HOME, self.settle)
        handlers.on(KEEP_NAME, self.keep)
        handlers.on(RELEASE_NAME, self.release)

    async def owner(self, call: Call[OwnerParams, NoQuery, None]) -> Owner:
        """From this node's own records, else from what its catalog says of the region."""
        for bucket in _PLACES[call.params.kind]:
            found = self._store.get(bucket, call.params.id)
            if found is not None:
                return Owner(node=self._parts.node.id, app=found.app)
        told = await self._told(call.params)
        if told is None:
            raise NotFound(f"{call.params.kind} not found")
        return told

    async def _told(self, params: OwnerParams) -> Owner | None:
        if self._parts.catalog is None or params.kind not in _ROWS:
            return None
        table = await self._parts.catalog.query(Statement(query=_ROWS[params.kind], params=(params.id,)))
        return next((Owner(node=str(node), app=str(app)) for node, app in table.rows), None)

    async def carry(self, call: Call[AppParams, NoQuery, OrderedApp]) -> App:
        porter = self._parts.porter
        if porter is None:
            raise NotServed("this node is of no cluster")
        record = await porter.carry(call.body)
        await self._parts.deps.fences.renew_soon(record.name)
        apps = self._parts.apps
        return views.app(
            record, apps.machine_count(self._store, record.name), apps.volume_count(self._store, record.name)
        )

    async def settle(self, call: Call[AppParams, NoQuery, HomeRequest]) -> AppCopy:
        """Not while gossip says that the home lives, whoever believes that it was forgotten."""
        parts, body = self._parts, call.body
        if parts.porter is None:
            raise NotServed("this node is of no cluster")
        members = parts.fleet.members if parts.fleet else ()
        if body.take and any(each.node == body.old and each.fate in _LIVES for each in members):
            raise Conflict(f"node {body.old:.40}, the home of app '{call.params.app_name:.80}', lives")
        return await parts.porter.settle(call.params.app_name, body.old, take=body.take)

    async def keep(self, call: Call[AppParams, NoQuery, NameRequest]) -> NameKept:
        """Kept for whoever asked first, until it is released."""
        name, body, now = app_name(call.params.app_name), call.body, self._parts.deps.clock.now()
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
