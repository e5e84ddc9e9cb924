"""Where a new volume is made: on the node that has what it is made from, else on one of the region that has room. A
node that has none sends the call to the next.
"""

from collections.abc import Sequence

from hawker.api.contract.app import AppParams
from hawker.api.contract.owner import Owner
from hawker.api.contract.volume import (
    CREATE_VOLUME,
    FIND_SNAPSHOT,
    LIST_VOLUMES,
    CreateVolumeRequest,
    ListVolumesQuery,
    SnapshotOwner,
    SnapshotParams,
    Volume,
)
from hawker.api.directory import Node
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoQuery
from hawker.errors import HawkerError, NoRoom, NotFound, Unavailable, Unprocessable
from hawker.gateway.apps import AppSync
from hawker.gateway.fan_out import FanOut
from hawker.gateway.forwarding import Forwarding
from hawker.gateway.owners import Kind
from hawker.ids import AppName, NodeId
from hawker.permission import Action, Attempt
from hawker.record.volume import count_beside
from hawker.region import accepts

MOST_TRIED = 5
MOST_ASKED = 64
_UNKNOWN = 1_000_000  # volumes of a node that does not say


class FleetVolumes:
    def __init__(self, passing: Forwarding, app_sync: AppSync, fan_out: FanOut) -> None:
        self._fan_out = fan_out
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
        for node in (await self._candidates(app, body, call.behalf))[:MOST_TRIED]:
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
        found = await self._owner("snapshot", call.params.snapshot_id, call.behalf)
        if not call.grant.permits(Attempt(Action.READ, app=found.app)):
            raise NotFound(f"snapshot {call.params.snapshot_id:.40} not found")
        return SnapshotOwner(id=call.params.snapshot_id, app=found.app)

    async def _at(self, node: NodeId, app: AppName, call: Call[AppParams, NoQuery, CreateVolumeRequest]) -> Volume:
        await self._app_sync.to(app, node, call.behalf)
        made = await self._forwarding.unary_at(node, CREATE_VOLUME, call)
        self._owners.remember("volume", made.id, NodeId(made.zone))
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
        return await self._owner("snapshot" if body.snapshot_id else "volume", name, call.behalf)

    async def _owner(self, kind: Kind, name: str, caller: str) -> Owner:
        """Raises `NotFound`."""
        known = self._owners.known(kind, name)
        up = [node.id for node in self._owners.directory.nodes() if not node.is_down]
        found = await self._owners.ask(kind, name, [known] if known else up, caller)
        if found is None and known:
            found = await self._owners.ask(kind, name, up, caller, without=known)
        if found is None:
            raise NotFound(f"{kind} {name:.40} not found")
        return found

    async def _candidates(self, app: AppName, body: CreateVolumeRequest, caller: str) -> list[NodeId]:
        """Nodes that take volumes, the emptiest first. One that knows the app comes after one that does not, so that
        volumes of one name come to lie apart; where they have to, one with fewer of them comes first."""
        directory = self._owners.directory
        knows = frozenset(self._owners.nodes_of_app(app))
        wanted = body.region or directory.region
        able = [node for node in directory.nodes() if _open(node) and accepts(wanted, node.region)]
        asked = [node.id for node in able if node.id in knows][:MOST_ASKED] if body.require_unique_zone else []
        have = await self._counted(app, body, asked, caller) if len(able) > 1 else {}

        def rank(node: Node) -> tuple[bool, int, int, bool]:
            return node.region != directory.region, have.get(node.id, 0), -_free_mib(node), node.id in knows

        return [node.id for node in sorted(able, key=rank)]

    async def _counted(
        self, app: AppName, body: CreateVolumeRequest, nodes: Sequence[NodeId], caller: str
    ) -> dict[NodeId, int]:
        """How many volumes each has that this one is to be apart from. One that does not say comes last."""
        params, query = AppParams(app_name=app), ListVolumesQuery(summary=True)
        asked = await self._fan_out.every(
            nodes, caller, lambda there: there.call(LIST_VOLUMES, params=params, query=query)
        )
        name = None if body.unique_zone_app_wide else body.name
        counted = {node: count_beside(page.items, name) for node, page in asked.answers}
        return {node: _UNKNOWN for node, _ in asked.silent} | counted


def _open(node: Node) -> bool:
    return node.alive and not node.cordoned and not node.draining


def _free_mib(node: Node) -> int:
    if node.capacity is None or node.used is None:
        return 0
    return node.capacity.disk_mib - node.used.disk_mib
