"""Order."""

import msgspec

from hawker.ids import NodeId
from hawker.store.contract import Bucket


class Dated(msgspec.Struct, frozen=True, kw_only=True):
    """Written down at this moment, Unix seconds."""

    at: float


class CancelRecord(Dated, frozen=True, kw_only=True):
    """An order that came too late, or will."""


class ClaimRecord(Dated, frozen=True, kw_only=True):
    """Where an order with a key goes, and how often it moved on."""

    node: NodeId
    number: int = 0


CANCELLED = Bucket("orders_cancelled", CancelRecord)  # app/order id


CLAIMS = Bucket("order_claims", ClaimRecord)  # app/order id
