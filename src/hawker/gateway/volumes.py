"""Where a new volume is made: on the node that has what it is made from, else on one of the region that has room. A
node that has none sends the call to the next.
"""

from hawker.api.contract.app import AppParams
from hawker.api.contract.owner import Owner
from hawker.api.contract.volume import (
    CREATE_VOLUME,
    FIND_SNAPSHOT,
    CreateVolumeRequest,
    SnapshotOwner,
    SnapshotParams,
    Volume,
)
from hawker.api.directory import Node
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery
from hawker.errors import HawkerError, NoRoom, NotFound, Unavailable, Unprocessable
from hawker.gateway.app_sync import AppSync
from hawker.gateway.forwarding import Forwarding
from hawker.gateway.owners import Kind
from hawker.ids import AppName, NodeId
from hawker.permission import Action, Attempt
from hawker.region import accepts

MOST_TRIED = 5


class FleetVolumes:
    def __init__(self, passing: Forwarding, app_sync: AppSync) -> None:
        self._forwarding = passing
        self._owners = passing.owners
        self._app_sync = app_sync

    def bind(self, handlers: Handlers) -> None:
        handlers.on(CREATE_VOLUME, self.create)
        handlers.on(FIND_SNAPSHOT, self.snapshot)

    async def create(self, call: Call[AppParams, NoQuery, CreateVolumeRequest]) -> Volume:
        app, body = AppName(call.params.app_name), call.body
        origin = await self._origin(call)
        if origin is not None:
            call.grant.check(Attempt(Action.READ, app=origin.app))
            return await self._at(NodeId(origin.node), app, call)
        if body.backup:
            call.grant.check(Attempt(Action.READ, app=app))
        refusals: list[HawkerError] = []
        for node in self._candidates(app, body.region, body.name)[:MOST_TRIED]:
            try:
                return await self._at(node, app, call)
            except (NoRoom, Unavailable) as error:
                refusals.append(error)
        for refusal in refusals:
            if isinstance(refusal, NoRoom):
                raise refusal
        for refusal in refusals:
            raise refusal
        regions = sorted({node.region for node in self._owners.directory.nodes() if _open(node)})
        raise Unprocessable(f"region: no node of {body.region!r:.40} takes volumes now; there are {', '.join(regions)}")

    async def snapshot(self, call: Call[SnapshotParams, NoQuery, None]) -> SnapshotOwner:
        found = await self._owner("snapshot", call.params.snapshot_id, call.caller)
        if not call.grant.permits(Attempt(Action.READ, app=found.app)):
            raise NotFound(f"snapshot {call.params.snapshot_id:.40} not found")
        return SnapshotOwner(id=call.params.snapshot_id, app=found.app)

    async def _at(self, node: NodeId, app: AppName, call: Call[AppParams, NoQuery, CreateVolumeRequest]) -> Volume:
        await self._app_sync.to(app, node, call.caller)
        made = await self._forwarding.unary_at(node, CREATE_VOLUME, call)
        self._owners.remember("volume", made.id, node)
        self._owners.remember("app", app, node)
        return made

    async def _origin(self, call: Call[AppParams, NoQuery, CreateVolumeRequest]) -> Owner | None:
        """Who has what the volume is to be made from. Raises `NotFound`."""
        body = call.body
        if body.snapshot_id and body.source_volume_id:
            raise Unprocessable("snapshot_id and source_volume_id: a volume is made from one of them")
        name = body.snapshot_id or body.source_volume_id
        if not name:
            return None
        return await self._owner("snapshot" if body.snapshot_id else "volume", name, call.caller)

    async def _owner(self, kind: Kind, name: str, caller: str) -> Owner:
        """Raises `NotFound`."""
        known = self._owners.known(kind, name)
        alive = [node.id for node in self._owners.directory.nodes() if node.alive]
        found = await self._owners.ask(kind, name, [known] if known else alive, caller)
        if found is None and known:
            found = await self._owners.ask(kind, name, alive, caller, without=known)
        if found is None:
            raise NotFound(f"{kind} {name:.40} not found")
        return found

    def _candidates(self, app: AppName, region: str | None, name: str) -> list[NodeId]:
        """Nodes that take volumes, the emptiest first. One that knows the app comes after one that does not, so that
        volumes of one name come to lie apart."""
        directory = self._owners.directory
        knows = frozenset(self._owners.nodes_of_app(app))
        wanted = region or directory.region
        able = [node for node in directory.nodes() if _open(node) and accepts(wanted, node.region)]
        ordered = sorted(able, key=lambda node: (node.region != directory.region, -_free_mib(node), node.id in knows))
        return [node.id for node in ordered]


def _open(node: Node) -> bool:
    return node.alive and not node.cordoned and not node.draining


def _free_mib(node: Node) -> int:
    if node.capacity is None or node.used is None:
        return 0
    return node.capacity.disk_mib - node.used.disk_mib
