"""Filling an order that a broker sends: admitted and created in one transaction, at most once, or refused.

With the order comes its app, which this node may not know. `Luggage` packs and unpacks what else of an app its machines
need on another node than the app's home.
"""

from collections import OrderedDict
from collections.abc import Coroutine
from typing import Any, Protocol

import anyio
import msgspec

from hawker.api.codec import encode_json
from hawker.api.contract.market import OrderedApp, OrderRequest
from hawker.config import MachineConfig, validate
from hawker.config.placement import Placement, Spread, lacking, parse_labels, placement_of
from hawker.errors import DeadlineExceeded, NameTaken, NoRoom, Unavailable
from hawker.ids import AppName, OrderId
from hawker.record.app import APPS, AppRecord
from hawker.record.machine import BY_APP, MachineRecord
from hawker.store.contract import Reader, Tx
from hawker.worker.assembly import AssembledWorker
from hawker.worker.bids import closed
from hawker.worker.images import Images, resolve
from hawker.worker.order_ledger import OrderLedger, checked_key
from hawker.worker.orders import new_record, serves_region

_KEPT, _KEPT_BYTES = 256, 16 * 1024


class Luggage(Protocol):
    """What of an app travels with its orders, beside its record."""

    def pack(self, reader: Reader, app: AppRecord) -> bytes:
        """At the app's home."""

    def unpack(self, tx: Tx, app: AppRecord, packed: bytes) -> None:
        """In the transaction that creates the machine. What is older than what is here changes nothing."""


class NoLuggage:
    """Apps are no more than their records."""

    def pack(self, reader: Reader, app: AppRecord) -> bytes:
        return b""

    def unpack(self, tx: Tx, app: AppRecord, packed: bytes) -> None:
        return None


class Filling:
    def __init__(self, parts: AssembledWorker, ledger: OrderLedger, luggage: Luggage) -> None:
        self._parts = parts
        self._ledger = ledger
        self._luggage = luggage
        self._labels = parse_labels(",".join(parts.deps.settings.labels))
        self._sound: OrderedDict[bytes, Placement] = OrderedDict()

    def export(self, name: str) -> OrderedApp:
        """Raises `NotFound`."""
        store = self._parts.deps.store
        app = self._parts.apps.get(store, name)
        fields = msgspec.structs.asdict(app)
        fields.pop("idempotency_key")
        fields.pop("home")
        return OrderedApp(**fields, luggage=self._luggage.pack(store, app))

    async def fill(self, order: OrderRequest, caller: str, deadline_s: float | None = None) -> MachineRecord:
        """The machine, new or of the same order before. Raises `NoRoom` when the node cannot fill it, `OrderCancelled`
        when it came too late, `DeadlineExceeded` when its caller has gone before it began."""
        parts, body, key = self._parts, order.machine, OrderId(order.order_id)
        app = _record(order.app)
        checked_key(app.name, key)
        self._ledger.check(parts.deps.store, app.name, key)
        made = parts.deps.table.made_for(parts.deps.store, app.name, key)
        if made is not None:
            return made
        written = encode_json(body.config)
        placement = self._sound.get(written) or placement_of(body.config)
        self._check(parts.deps.store, app.name, placement)
        self._validate(body.config, written, placement)
        serves_region(parts.node.region, body.region)
        images = await _in_time(resolve(parts.deps.images, body.config), deadline_s)
        record = new_record(parts, app, body, images, caller=caller, key=key)
        skip = bool(body.skip_secrets)

        def first(tx: Tx) -> None:
            self._ledger.check(tx, app.name, key)
            if parts.deps.table.made_for(tx, app.name, key) is not None:
                return
            self._check(tx, app.name, placement)
            _check_same(tx, app)
            self._luggage.unpack(tx, app, order.app.luggage)
            _know(tx, app)
            parts.deps.secrets.check_version(tx, app.name, body.min_secrets_version)
            parts.deps.secrets.check_names(app.name, body.config, skip=skip, reader=tx)

        made = await parts.operations.create(record, launch=not body.skip_launch, skip_secrets=skip, first=first)
        return made

    def _validate(self, config: MachineConfig, written: bytes, placement: Placement) -> None:
        """Apps order the same machine again and again: a config that was found sound is so for as long as this lives.
        Raises `Unprocessable`."""
        if written in self._sound:
            return
        validate(config, self._parts.deps.driver.features)
        if len(written) <= _KEPT_BYTES:
            self._sound[written] = placement
            if len(self._sound) > _KEPT:
                self._sound.popitem(last=False)

    def _check(self, reader: Reader, app: AppName, wanted: Placement) -> None:
        """What may have changed since the bid. Raises `Unavailable`, so that the broker goes on to the next."""
        reason = closed(reader)
        if reason is not None:
            raise Unavailable(f"{reason}: nothing was created")
        missing = lacking(wanted.labels, self._labels)
        if missing is not None:
            raise Unavailable(f"the node does not have the label {missing}: nothing was created")
        if wanted.spread is Spread.HARD and (there := reader.count(BY_APP, f"{app}/")):
            raise NoRoom(
                f"machines of the app that the node has already: {there}; they are to be apart",
                scope="host",
                shortfall={"hosts": 1},
            )


async def _in_time(asking: Coroutine[Any, Any, Images], deadline_s: float | None) -> Images:
    """A registry may take longer than whoever sent the order waits."""
    with anyio.move_on_after(deadline_s):
        return await asking
    raise DeadlineExceeded("the image's registry did not answer in time; nothing was created")


def _record(app: OrderedApp) -> AppRecord:
    fields = msgspec.structs.asdict(app)
    fields.pop("luggage")
    return AppRecord(**{**fields, "name": AppName(app.name)})


def _know(tx: Tx, app: AppRecord) -> None:
    """The app is here from now on, also if it brought nothing."""
    if tx.get(APPS, app.name) is None:
        tx.put(APPS, app.name, app)


def _check_same(tx: Tx, app: AppRecord) -> None:
    """Raises `NameTaken` when there is another one of its name."""
    there = tx.get(APPS, app.name)
    if there is not None and there.id != app.id:
        raise NameTaken(f"app '{app.name}' of this order is not the app of that name at this node")
