"""What a worker remembers of orders beside the machines that they became: which were cancelled here and, at the home
of an app, to which node each order with a key belongs.

Invariant: an order with a key is sent only to the node that its claim names, and the claim moves on only from a node
that has written down that it will not fill it. So it is filled once, whichever brokers try, and however often.
"""

from typing import TypeVar

from hawker.clock import Clock
from hawker.errors import BadRequest, OrderCancelled
from hawker.ids import AppName, NodeId, OrderId
from hawker.record.machine import MachineRecord
from hawker.record.order import CANCELLED, CLAIMS, CancelRecord, ClaimRecord, Dated
from hawker.store.contract import Bucket, Reader, Store, Tx
from hawker.worker.table import MachineTable, order_key

KEPT_S = 7 * 86_400.0
MAX_KEY_BYTES = 255
_SWEPT = 8  # looked at, and dropped if old, for each that is added


D = TypeVar("D", bound=Dated)


class OrderLedger:
    """Both lists are bounded by age: each entry that is added looks at the next few old ones."""

    def __init__(self, store: Store, clock: Clock, table: MachineTable, *, kept_s: float = KEPT_S) -> None:
        self._store = store
        self._clock = clock
        self._table = table
        self._kept_s = kept_s
        self._swept: dict[str, str | None] = {}

    def check(self, reader: Reader, app: AppName, order: OrderId) -> None:
        """Raises `OrderCancelled`. Asked in the transaction that would fill the order."""
        if reader.get(CANCELLED, order_key(app, order)) is not None:
            raise OrderCancelled(f"order {order} was cancelled at this node")

    async def cancel(self, app: AppName, order: OrderId, *, anyway: bool = False) -> MachineRecord | None:
        """The machine if the order was filled; else it never will be. `anyway`: it counts as not filled from now on."""
        key = checked_key(app, order)

        def apply(tx: Tx) -> MachineRecord | None:
            made = self._table.made_for(tx, app, order)
            if not anyway and tx.get(CANCELLED, key) is not None:
                return None
            if made is None or anyway:
                tx.put(CANCELLED, key, CancelRecord(at=self._clock.now()))
                self._sweep(tx, CANCELLED)
            return made

        return await self._store.write(apply)

    async def claim(self, app: AppName, order: OrderId, node: NodeId, instead_of: int | None) -> ClaimRecord:
        """Where the order belongs: at `node` if nobody had claimed it, or the claim of that number was the last one."""
        key = checked_key(app, order)

        def apply(tx: Tx) -> ClaimRecord:
            there = tx.get(CLAIMS, key)
            if there is not None and there.number != instead_of:
                return there
            number = 0 if there is None else there.number + 1
            claim = ClaimRecord(node=node, number=number, at=self._clock.now())
            tx.put(CLAIMS, key, claim)
            self._sweep(tx, CLAIMS)
            return claim

        return await self._store.write(apply)

    def _sweep(self, tx: Tx, bucket: Bucket[D]) -> None:
        oldest = self._clock.now() - self._kept_s
        found = list(tx.scan(bucket, after=self._swept.get(bucket.name), limit=_SWEPT))
        for key, record in found:
            if record.at < oldest:
                tx.delete(bucket, key)
        self._swept[bucket.name] = found[-1][0] if len(found) == _SWEPT else None


def checked_key(app: AppName, order: OrderId) -> str:
    """Raises `BadRequest`."""
    if not order or len(order.encode()) > MAX_KEY_BYTES:
        raise BadRequest(f"an order's id, or its Idempotency-Key, has 1 to {MAX_KEY_BYTES} bytes")
    return order_key(app, order)
