"""The worker's side of the market: bids, orders, their cancels, and the claims of the apps whose home it is."""

from collections.abc import Callable

from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import Machine
from hawker.api.contract.market import (
    CANCEL,
    CLAIM,
    EXPORT_APP,
    FILL,
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
)
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.errors import BadRequest
from hawker.ids import AppName, NodeId, OrderId
from hawker.machine import GONE
from hawker.record.machine import MachineRecord, MachineTarget
from hawker.worker.bids import MOST_AT_ONCE
from hawker.worker.bids import Bidder as Bidding
from hawker.worker.operations import Operations
from hawker.worker.order import OrderIntake, OrderLedger

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
