"""The answer to where machines would find room: what this node has, less what its machines hold. Reserves nothing."""

from collections.abc import Callable

from hawker.api.contract.market import (
    LIST_PLACEMENTS,
    Placements,
    PlacementsRequest,
    RegionPlacement,
)
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.config import Guest, MachineConfig
from hawker.config.rules import demand_of, validate
from hawker.errors import Unprocessable
from hawker.gpu import how_often
from hawker.node import Capacity, Resources, how_many
from hawker.permission import Action, Attempt
from hawker.record.machine import taken
from hawker.record.node import NodeRecord
from hawker.region import accepts
from hawker.runtime.driver import Driver
from hawker.settings import Settings
from hawker.store.contract import Store
from hawker.worker.capacity import room_for
from hawker.worker.table import MachineTable

MOST = 100_000
_MIB = 1 << 20
_VOLUME_BYTES = 3 << 30  # of a volume that only has a name
_WEIGHTS = frozenset({"region", "spread"})
_USUAL = Guest(cpu_kind="performance", cpus=1)
_SOME_IMAGE = "image"  # its size is the same whatever it runs


class PlacementHandlers:
    def __init__(
        self,
        store: Store,
        table: MachineTable,
        driver: Driver,
        settings: Settings,
        node: NodeRecord,
        room: Callable[[], Capacity],
    ) -> None:
        self._store = store
        self._table = table
        self._driver = driver
        self._settings = settings
        self._node = node
        self._room = room

    def bind(self, handlers: Handlers) -> None:
        handlers.on(LIST_PLACEMENTS, self.list)

    async def list(self, call: Call[NoParams, NoQuery, PlacementsRequest]) -> Placements:
        """The placements in one region at most, as long as a node knows no other: this node's, if the request takes
        it."""
        body = call.body
        call.grant.check(Attempt(Action.READ, org=body.org_slug))
        _check(body)
        config = self._config(body)
        asked, room, most = self._asked(body, config), self._room(), body.count or MOST
        fits = how_many(room, self._table.used(self._store), asked, most=most)
        demand = demand_of(config)
        if demand is not None:
            fits = min(fits, how_often(demand, room.gpus, taken(self._store)))
        region = self._node.region
        if not accepts(body.region, region) or not fits:
            return Placements(regions=(), Regions=())
        found = RegionPlacement(
            region=region, count=fits, concurrency=fits, Region=region, Count=fits, Concurrency=fits
        )
        return Placements(regions=(found,), Regions=(found,))

    def _config(self, body: PlacementsRequest) -> MachineConfig:
        """Of one such machine. Raises `Unprocessable` naming the field."""
        config = MachineConfig(image=_SOME_IMAGE, guest=body.compute or _USUAL)
        try:
            validate(config, self._driver.features)
        except Unprocessable as error:
            raise Unprocessable(str(error).replace("config.guest", "compute")) from error
        return config

    def _asked(self, body: PlacementsRequest, config: MachineConfig) -> Resources:
        """What one machine would take, with its volume."""
        machine = room_for(self._settings, self._driver.features.overhead_mib, config)
        volume_bytes = body.volume_size_bytes or (_VOLUME_BYTES if body.volume_name else 0)
        return machine.plus(Resources(disk_mib=-(-volume_bytes // _MIB)))


def _check(body: PlacementsRequest) -> None:
    """Raises `Unprocessable` naming the field."""
    if not 0 <= (body.count or 0) <= MOST:
        raise Unprocessable(f"count: {body.count} is not between 0 and {MOST}")
    if not 0 <= (body.volume_size_bytes or 0) < 1 << 62:
        raise Unprocessable(f"volume_size_bytes: {body.volume_size_bytes} is no size of a volume")
    for name in body.weights or ():
        if name not in _WEIGHTS:
            raise Unprocessable(f"weights: {name!r:.80} is not one of {', '.join(sorted(_WEIGHTS))}")
