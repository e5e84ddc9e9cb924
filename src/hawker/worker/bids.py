"""What this worker bids for machines: a quote from its records that reserves nothing and asks nobody else.

One call answers many asks, so what they have in common (the host's room, what is used) is looked up once.
"""

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from hawker.api.contract.machine import CreateMachineRequest
from hawker.api.contract.market import NUMBERED, Bid, BidAsk, Decline, DeclineKind, Headroom, LayerRef
from hawker.api.failure import problem_of
from hawker.config import validate
from hawker.config.effective import image_names
from hawker.config.placement import Placement, Spread, lacking, parse_labels, placement_of
from hawker.config.rules import demand_of
from hawker.errors import BadRequest, HawkerError, Moved, Unprocessable
from hawker.gpu import Demand
from hawker.ids import AppName, Digest, OrderId
from hawker.image.config import Layer
from hawker.image.reference import is_digest
from hawker.node import Capacity, Resources, how_many, shortfall, shortfall_text
from hawker.record.machine import BY_APP, BY_NAME, BY_ORDER, short_of, taken
from hawker.record.node import closed
from hawker.value_object import ValueObject
from hawker.volume import attachment
from hawker.worker.assembly import AssembledWorker
from hawker.worker.capacity import room_for
from hawker.worker.table import order_key

MOST_AT_ONCE = 64
MOST_OF_ONE = 1000
_KEPT, _KEPT_BYTES = 256, 16 * 1024
_MOVED = 64  # names that are looked at
_ASK = msgspec.json.Decoder(BidAsk)
_NOWHERE = "sha256:" + "-" * 64
_MEDIA_TYPE = ""  # of a layer that is only counted


class Bidder:
    """`driver` is the name that an order may ask for."""

    def __init__(self, parts: AssembledWorker) -> None:
        self._parts = parts
        self._labels = parse_labels(",".join(parts.deps.settings.labels))
        self._known: OrderedDict[bytes, _Wanted | Bid] = OrderedDict()

    def quotes(self, asks: Iterable[msgspec.Raw]) -> tuple[Bid, ...]:
        """One bid for each of `asks`. Equal asks are worked out once."""
        counter = _Counter(self._parts)
        known: dict[bytes, Bid] = {}
        bids = []
        for raw in asks:
            data = bytes(raw)
            if data not in known:
                known[data] = self._quote(self._read(data), counter)
            bids.append(known[data])
        return tuple(bids)

    def _read(self, data: bytes) -> "_Wanted | Bid":
        """Apps order the same machine again and again: what follows from the ask alone is kept for a while."""
        read = self._known.get(data)
        if read is None:
            read = self._wanted(data)
            if len(data) <= _KEPT_BYTES:
                self._known[data] = read
                if len(self._known) > _KEPT:
                    self._known.popitem(last=False)
        return read

    def _wanted(self, data: bytes) -> "_Wanted | Bid":
        try:
            ask = _ASK.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            return Bid(fits=0, decline=Decline(kind=DeclineKind.UNFIT, reason=f"cannot be read here: {error}"))
        config, features = ask.machine.config, self._parts.deps.driver.features
        try:
            placement = placement_of(config)
            validate(config, features)
        except Unprocessable as error:
            return Bid(fits=0, decline=_refused(DeclineKind.UNFIT, error))
        demand = None if ask.machine.skip_launch else demand_of(config)
        return _Wanted(ask, placement, asked_by(self._parts, ask.machine), demand)

    def _quote(self, wanted: "_Wanted | Bid", counter: "_Counter") -> Bid:
        if isinstance(wanted, Bid):
            return wanted
        ask = wanted.ask
        filled = self._filled(ask)
        if filled is not None:
            return Bid(fits=0, filled=filled)
        same_app = counter.machines_of(ask.app)
        decline = self._decline(ask, wanted.placement, same_app, counter)
        if decline is not None:
            return Bid(fits=0, same_app=same_app, decline=decline, name_taken=self._taken(ask))
        return msgspec.structs.replace(self._offer(wanted, counter), same_app=same_app, name_taken=self._taken(ask))

    def _filled(self, ask: BidAsk) -> str | None:
        """Also under the names that it has once it was moved on (`NUMBERED`)."""
        if ask.order_id is None:
            return None
        store, app = self._parts.deps.store, AppName(ask.app)
        try:
            made = self._parts.deps.table.made_for(store, app, OrderId(ask.order_id))
        except Moved:  # who has it says so
            return None
        if made is not None and NUMBERED not in ask.order_id:
            return made.id
        prefix = f"{order_key(app, OrderId(ask.order_id))}{NUMBERED}"
        moved = store.scan(BY_ORDER, prefix, limit=_MOVED)
        return next((found.id for key, found in moved if key.removeprefix(prefix).isdigit()), None)

    def _taken(self, ask: BidAsk) -> bool:
        name = ask.machine.name
        return bool(name) and self._parts.deps.store.get(BY_NAME, f"{ask.app}/{name}") is not None

    def _decline(self, ask: BidAsk, wanted: Placement, same_app: int, counter: "_Counter") -> Decline | None:
        """Every reason but room."""
        reason = counter.closed
        if reason is not None:
            return Decline(kind=DeclineKind.CLOSED, reason=reason)
        missing = lacking(wanted.labels, self._labels)
        if missing is not None:
            return Decline(kind=DeclineKind.LABELS, reason=f"the node does not have the label {missing}")
        if wanted.driver not in (None, self._parts.deps.driver.name):
            return Decline(kind=DeclineKind.DRIVER, reason=f"the node's driver is {self._parts.deps.driver.name}")
        if wanted.spread is Spread.HARD and same_app:
            return Decline(kind=DeclineKind.APART, reason=f"machines of the app that the node has already: {same_app}")
        try:
            deps, config = self._parts.deps, ask.machine.config
            config = attachment.as_wished(config) if deps.settings.volume_encryption == "wished" else config
            attachment.findable(deps.store, AppName(ask.app), config, to_guest=deps.driver.features.disks)
        except HawkerError as error:
            return _refused(DeclineKind.VOLUME, error)
        return self._out_of_reach(ask)

    def _out_of_reach(self, ask: BidAsk) -> Decline | None:
        """An image that was imported elsewhere, and that nobody can hand over, is nothing to bid with."""
        for name in image_names(ask.machine.config):
            try:
                error = self._parts.deps.images.out_of_reach(name)
            except BadRequest:
                continue
            if error is not None:
                return _refused(DeclineKind.UNFIT, error)
        return None

    def _offer(self, wanted: "_Wanted", counter: "_Counter") -> Bid:
        ask, asked, demand = wanted.ask, wanted.asked, wanted.demand
        most = max(1, min(ask.count, MOST_OF_ONE))
        fits = how_many(counter.room, counter.used, asked, most=most)
        missing = {} if fits else shortfall(counter.room, counter.used, asked)
        if demand is not None:
            free = counter.free_gpus(demand)
            fits = min(fits, free // demand.count)
            if free < demand.count:
                missing[short_of(demand.kind)] = demand.count - free
        if missing:
            return Bid(
                fits=0,
                decline=Decline(
                    kind=DeclineKind.NO_ROOM, reason=f"short of {shortfall_text(missing)}", shortfall=missing
                ),
            )
        size, absent, nearby, layers = self._bytes(ask)
        return Bid(
            fits=fits,
            headroom=counter.headroom(asked, demand),
            image_bytes=size,
            missing_bytes=absent,
            nearby_bytes=nearby,
            layers=layers,
        )

    def _bytes(self, ask: BidAsk) -> tuple[int | None, int | None, int, dict[str, tuple[LayerRef, ...]]]:
        """Of all images of the config: how large, how much of it is not here, and how much of that a neighbour has;
        None when one of them is not known. Layers that the broker knows are those of an image that somebody has."""
        images, told = self._parts.deps.images, dict[str, tuple[LayerRef, ...]]()
        size = absent = nearby = 0
        for name in image_names(ask.machine.config):
            try:
                image = images.find(name)
            except BadRequest:
                return None, None, 0, {}
            layers = ask.layers.get(name)
            if image is not None:
                size += image.size_bytes
                if layers is None:
                    told[name] = tuple(LayerRef(digest=layer.digest, size=layer.size) for layer in image.layers)
            elif layers is not None:
                size += sum(layer.size for layer in layers)
                missing = images.missing_of(_layers(layers))
                absent += missing
                nearby += missing if images.has_neighbour(name) else 0
            else:
                return None, None, 0, told
        return size, absent, nearby, told


class _Wanted(ValueObject, frozen=True):
    """An ask, read and found to be served here."""

    ask: BidAsk
    placement: Placement
    asked: Resources
    demand: Demand | None


class _Counter:
    """What one call has looked up already."""

    def __init__(self, parts: AssembledWorker) -> None:
        self._store = parts.deps.store
        self.room: Capacity = parts.room()
        self.used: Resources = parts.deps.table.used(self._store)
        self.closed = closed(self._store)
        self._machines: dict[str, int] = {}
        self._given: frozenset[str] | None = None

    def machines_of(self, app: str) -> int:
        if app not in self._machines:
            self._machines[app] = self._store.count(BY_APP, f"{app}/")
        return self._machines[app]

    def free_gpus(self, demand: Demand) -> int:
        given = self._given = taken(self._store) if self._given is None else self._given
        return sum(gpu.kind == demand.kind and gpu.address not in given for gpu in self.room.gpus)

    def headroom(self, asked: Resources, demand: Demand | None) -> dict[str, Headroom]:
        room, used = self.room, self.used
        ratio = room.shared_ratio
        found = {
            "cpu": _of(
                room.cpus * 1000,
                int(1000 * (used.performance_cpus + used.shared_cpus / ratio)),
                int(1000 * (asked.performance_cpus + asked.shared_cpus / ratio)),
            ),
            "memory": _of(room.memory_mib, used.memory_mib, asked.memory_mib),
            "disk": _of(room.disk_mib, used.disk_mib, asked.disk_mib),
        }
        if demand is not None:
            there = sum(gpu.kind == demand.kind for gpu in room.gpus)
            found["gpu"] = _of(there, there - self.free_gpus(demand), demand.count)
        return found


def asked_by(parts: AssembledWorker, machine: CreateMachineRequest) -> Resources:
    """The resources that a machine would hold of the node from the first moment."""
    return (
        Resources()
        if machine.skip_launch
        else room_for(parts.deps.settings, parts.deps.driver.features.overhead_mib, machine.config)
    )


def _of(total: int, used: int, takes: int) -> Headroom:
    return Headroom(total=total, takes=takes, left=max(0, total - used - takes))


def _layers(layers: Iterable[LayerRef]) -> list[Layer]:
    """What is no digest is nowhere."""
    sound = ((each.digest if is_digest(each.digest) else _NOWHERE, each.size) for each in layers)
    return [Layer(digest=Digest(digest), size=size, media_type=_MEDIA_TYPE) for digest, size in sound]


def _refused(kind: DeclineKind, error: HawkerError) -> Decline:
    return Decline(kind=kind, reason=str(error), http_status=error.status, problem=problem_of(error))
