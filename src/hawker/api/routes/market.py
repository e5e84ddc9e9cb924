"""Calls of the market: the one for clients, and those that brokers make to workers' peer API."""

from types import NoneType

import msgspec

from hawker.api.bodies import (
    Bids,
    BidsRequest,
    CancelAnswer,
    Claim,
    ClaimRequest,
    Machine,
    OrderedApp,
    OrderRequest,
    PlaceAnswer,
    PlaceRequest,
)
from hawker.api.route import NoParams, NoQuery, Tag, Unary
from hawker.api.routes.apps import AppParams
from hawker.errors import (
    AlreadyExists,
    Conflict,
    NoRoom,
    NoRoomAtVolume,
    NotFound,
    OrderCancelled,
    OrderUncertain,
    RateLimited,
    Unavailable,
    WrongState,
)
from hawker.permission import Action

ORDER_TIMEOUT_S = 75.0
NUMBERED = "~"
"""Between an order's key and the number of its claim, in its name at the node of the claim; the first has no number."""


class OrderParams(msgspec.Struct, frozen=True, kw_only=True):
    order_id: str


class CancelQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`destroy`: the machine, too, if there is one."""

    app_name: str = ""
    destroy: bool = False


class ClaimParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    order_id: str


PLACE = Unary(
    name="place",
    method="POST",
    path="/hawker/v1/place",
    params=NoParams,
    query=NoQuery,
    body=PlaceRequest,
    response=PlaceAnswer,
    tag=Tag.MACHINES,
    summary="Order machines and show every bid, or only ask for bids",
    errors=(NotFound, AlreadyExists, NoRoom, NoRoomAtVolume, OrderUncertain, RateLimited, Unavailable),
    guarded=False,
    strict=True,
    keyed=True,
    timeout_s=120.0,
)

QUOTE = Unary(
    name="quote",
    method="POST",
    path="/internal/v1/bids",
    params=NoParams,
    query=NoQuery,
    body=BidsRequest,
    response=Bids,
    tag=Tag.NODE,
    summary="Answer with this node's bids; reserves nothing",
    timeout_s=5.0,
    action=Action.READ,
)

FILL = Unary(
    name="fill",
    method="POST",
    path="/internal/v1/orders",
    params=NoParams,
    query=NoQuery,
    body=OrderRequest,
    response=Machine,
    tag=Tag.NODE,
    summary="Fill an order here, or refuse it",
    errors=(NotFound, AlreadyExists, Conflict, NoRoom, NoRoomAtVolume, OrderCancelled, Unavailable, WrongState),
    timeout_s=ORDER_TIMEOUT_S,
)

CANCEL = Unary(
    name="cancel_order",
    method="DELETE",
    path="/internal/v1/orders/{order_id}",
    params=OrderParams,
    query=CancelQuery,
    body=NoneType,
    response=CancelAnswer,
    tag=Tag.NODE,
    summary="Cancel an order at this node, or learn that it was filled",
    timeout_s=5.0,
)

CLAIM = Unary(
    name="claim_order",
    method="POST",
    path="/internal/v1/apps/{app_name}/claims/{order_id}",
    params=ClaimParams,
    query=NoQuery,
    body=ClaimRequest,
    response=Claim,
    tag=Tag.NODE,
    summary="Record at the app's home which node gets an order with a key",
    errors=(NotFound,),
    timeout_s=5.0,
)

EXPORT_APP = Unary(
    name="export_app",
    method="GET",
    path="/internal/v1/apps/{app_name}",
    params=AppParams,
    query=NoQuery,
    body=NoneType,
    response=OrderedApp,
    tag=Tag.NODE,
    summary="Show the app as an order carries it to another node",
    errors=(NotFound,),
    timeout_s=5.0,
)

MARKET_ROUTES = (PLACE,)
MARKET_PEER_ROUTES = (QUOTE, FILL, CANCEL, CLAIM, EXPORT_APP)
