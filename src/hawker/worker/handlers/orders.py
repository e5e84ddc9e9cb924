"""The worker's side of the market: bids, orders, their cancels, the claims of the apps whose home it is, and the answer
to where machines would find room.
"""

from collections.abc import Callable

from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import Machine
from hawker.api.contract.market import (
    CANCEL,
    CLAIM,
    EXPORT_APP,
    FILL,
    LIST_PLACEMENTS,
    QUOTE,
    Bids,
    BidsRequest,
    CancelAnswer,
    CancelQuery,
    Claim,
    ClaimParams,
    ClaimRequest,
    OrderedApp,
    OrderParams,
    OrderRequest,
    Placements,
    PlacementsRequest,
    RegionPlacement,
)
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.config import Guest, MachineConfig
from hawker.config.rules import demand_of, validate
from hawker.errors import BadRequest, Unprocessable
from hawker.gpu import how_often
from hawker.ids import AppName, NodeId, OrderId
from hawker.machine import GONE
from hawker.node import Capacity, Resources, how_many
from hawker.permission import Action, Attempt
from hawker.record.machine import MachineRecord, MachineTarget, taken
from hawker.record.node import NodeRecord
from hawker.region import accepts
from hawker.runtime.driver import Driver
from hawker.settings import Settings
from hawker.store.contract import Store
from hawker.worker.bids import MOST_AT_ONCE
from hawker.worker.bids import Bidder as Bidding
from hawker.worker.capacity import room_for
from hawker.worker.operations import Operations
from hawker.worker.order import OrderIntake, OrderLedger
from hawker.worker.table import MachineTable

Shown = Callable[..., Machine]


class OrderHandlers:
    """`show` is how the API shows a machine."""

    def __init__(
        self,
        intake: OrderIntake,
        ledger: OrderLedger,
        bidding: Bidding,
        operations: Operations,
        show: Shown,
    ) -> None:
        self._intake = intake
        self._ledger = ledger
        self._bidding = bidding
        self._operations = operations
        self._show = show

    def bind(self, handlers: Handlers) -> None:
        handlers.on(QUOTE, self.quote)
        handlers.on(FILL, self.fill)
        handlers.on(CANCEL, self.cancel)
        handlers.on(CLAIM, self.claim)
        handlers.on(EXPORT_APP, self.export)

    async def quote(self, call: Call[NoParams, NoQuery, BidsRequest]) -> Bids:
        if len(call.body.asks) > MOST_AT_ONCE:
            raise BadRequest(f"asks: {len(call.body.asks)} are more than {MOST_AT_ONCE}")
        return Bids(bids=self._bidding.quotes(call.body.asks))

    async def fill(self, call: Call[NoParams, NoQuery, OrderRequest]) -> Machine:
        made = await self._intake.accept_order(call.body, call.caller, call.deadline_s)
        return self._shown(made, with_nonce=bool(call.body.machine.lease_ttl))

    async def cancel(self, call: Call[OrderParams, CancelQuery, None]) -> CancelAnswer:
        app, order = AppName(call.query.app_name), OrderId(call.params.order_id)
        made = await self._ledger.cancel(app, order, anyway=call.query.destroy)
        if made is not None and call.query.destroy and made.state not in GONE:
            nonce = made.lease.nonce if made.lease else None
            await self._operations.destroy(MachineTarget(app, made.id, nonce), force=True)
        return CancelAnswer(filled=None if made is None else self._shown(made, with_nonce=True))

    async def claim(self, call: Call[ClaimParams, NoQuery, ClaimRequest]) -> Claim:
        app, order = AppName(call.params.app_name), OrderId(call.params.order_id)
        claim = await self._ledger.claim(app, order, NodeId(call.body.node), call.body.instead_of)
        return Claim(node=claim.node, number=claim.number)

    async def export(self, call: Call[AppParams, NoQuery, None]) -> OrderedApp:
        return self._intake.export(call.params.app_name)

    def _shown(self, made: MachineRecord, *, with_nonce: bool) -> Machine:
        return self._show(made, nonce=made.lease.nonce if made.lease and with_nonce else None)


MOST = 100_000
_MIB = 1 << 20
_VOLUME_BYTES = 3 << 30  # of a volume that only has a name
_WEIGHTS = frozenset({"region", "spread"})
_USUAL = Guest(cpu_kind="performance", cpus=1)
_SOME_IMAGE = "image"  # its size is the same whatever it runs


# The answer to where machines would find room: what this node has, less what its machines hold. Reserves nothing.


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
        """One region at most, as long as a node knows no other: this node's, if the request takes it."""
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
